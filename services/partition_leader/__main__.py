"""`python -m partition_leader`: the same as `python -m share_node serve partition_leader`, for scripts that use this
form.

No module imports this one, so it alone may import the composition root; the import contract names it as an exception.
"""

import sys

from share_node.node.serve import serve_role

sys.exit(serve_role("partition_leader", sys.argv[1:]))
