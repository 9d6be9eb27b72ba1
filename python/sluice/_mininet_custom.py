"""The file for `mn --custom`: everything that it defines becomes a name of `mn`."""

from sluice.mininet import links

__all__ = ["links"]
