"""Adds the link type `sluice` to Mininet: a file for `mn --custom`.

Mininet 2.3 ignores `links` in such a file, because a list of names lacks a comma. So this file
writes to the table of `mn` itself.
"""

import __main__
from sluice.mininet import links

__main__.LINKS.update(links)
