"""The `sharegroups` command; needs the extra `cli` (click)."""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Run the command. When click is missing, print one line that names what to install (CM-73).

    The exit status is 130 after Ctrl-C and 143 after SIGTERM, even while the command is still starting.
    """
    # gRPC reads this when it is imported. Its own log lines, such as for a port in use, would only precede our error,
    # which also says what to do.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from kip932.grpc_library import FORKLESS, POLLING, choosing  # noqa: PLC0415
        from sharegroups.cli.interrupts import (  # noqa: PLC0415 - inside the try, for Ctrl-C
            leaving_at_once,
            leaving_words,
        )
        from sharegroups.cli.quick_start import end_without_search, importing  # noqa: PLC0415

        end_without_search()
        command = next(iter(sys.argv[1:]), "")
        with leaving_at_once(leaving_words(command)), importing(), choosing({**POLLING, **FORKLESS}):
            from sharegroups.cli.main import main  # noqa: PLC0415 - only here click may be missing
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print(
            "This needs more packages: in a clone of the project, pip install '.[cli]', for `up` '.[server,cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    main(prog_name="sharegroups")
