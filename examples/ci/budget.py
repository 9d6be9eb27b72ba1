"""Fetch a page and fail if it took longer than its budget: `budget.py URL SECONDS`."""

import sys
import time
import urllib.request


def main(url: str, budget: float) -> int:
    """Fetch the page at `url`; return the exit status."""
    start = time.monotonic()
    with urllib.request.urlopen(url, timeout=30) as page:
        size = len(page.read())
    took = time.monotonic() - start
    print(f"{url}: {size} bytes in {took:.3f} s, of {budget:g} s")
    return 0 if took <= budget else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
