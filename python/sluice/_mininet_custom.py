"""The file for `mn --custom`.

A list of words in Mininet 2.3 lacks a comma, so that `mn` takes no `links` from such a file. This
one adds its link to the table of `mn` itself.
"""

import __main__
from sluice.mininet import links

__main__.LINKS.update(links)
