"""`python -m group_coordinator`: the same as `python -m share_node serve group_coordinator`, for scripts that use it.

No module imports this one, so it alone may import the composition root; the import contract lists it as an exception.
"""

import sys

from share_node.node.serve import serve_role

sys.exit(serve_role("group_coordinator", sys.argv[1:]))
