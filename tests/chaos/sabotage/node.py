"""`python -m tests.chaos.sabotage.node NAME serve ROLE …`: a real node with one planted bug."""

from __future__ import annotations

import sys

from tests.chaos.sabotage.sabotages import named
from tests.simulation.mutants.mutant import plant

if __name__ == "__main__":
    plant(named(sys.argv[1]).mutant)
    # Imported only now, so that it has the bug.
    from share_node.node.serve import main

    sys.exit(main(sys.argv[3:]))
