"""`python -m share_node COMMAND`: the commands of this package without the client's command line.

`serve` runs one role, and needs neither click nor what the other commands import: it starts without them.
"""

import atexit
import gc
import sys

# Imported objects are not garbage, and the rest is freed with the process. Garbage collection would add a tenth to the
# cost of the imports, and a tenth of a second when the process exits.
gc.disable()
atexit.register(gc.freeze)

from share_node.node.serve import main as serve  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        gc.enable()
        sys.exit(serve(sys.argv[2:]))

    from share_node.commands import main

    gc.enable()
    main()
