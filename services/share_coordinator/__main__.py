"""Runs `python -m share_coordinator`, which is the same as `python -m share_node serve share_coordinator`.

No module imports this one, so it alone may import the composition root; the import contract names it as an exception.
"""

import sys

from share_node.node.serve import serve_role

sys.exit(serve_role("share_coordinator", sys.argv[1:]))
