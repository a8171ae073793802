"""The role share_coordinator as a process of its own: `python -m share_coordinator store.url=redis://… data.dir=…`.

The composition root is found by its name at run time: it may import every service, and no service imports it.
"""

import sys
from importlib import import_module

sys.exit(import_module("share_node.serve").main("share_coordinator", sys.argv[1:]))
