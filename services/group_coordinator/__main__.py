"""The role group_coordinator as a process of its own: `python -m group_coordinator store.url=redis://… data.dir=…`.

The composition root is found by its name at run time: it may import every service, and no service imports it.
"""

import sys
from importlib import import_module

sys.exit(import_module("share_node.serve").main("group_coordinator", sys.argv[1:]))
