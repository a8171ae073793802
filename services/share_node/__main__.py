"""`python -m share_node COMMAND`: the commands of this package without the client's command line.

`serve` runs one role, and needs neither click nor what the other commands import: it starts without them.
"""

import sys

from share_node.serve import main as serve

if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        sys.exit(serve(sys.argv[2:]))

    from share_node.commands import main

    main()
