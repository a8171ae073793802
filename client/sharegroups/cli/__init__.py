"""The `sharegroups` command; needs the extra `cli` (click and rich)."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point of the command: one line that names what to install when click is missing (CM-73)."""
    try:
        from sharegroups.cli.main import main  # noqa: PLC0415 - only here click may be missing
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print("The sharegroups command needs more packages: pip install 'sharegroups[cli]'", file=sys.stderr)
        sys.exit(1)
    main(prog_name="sharegroups")
