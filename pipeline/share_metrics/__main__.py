"""`python -m share_metrics ingest …`, and the file for `spark-submit …/share_metrics/__main__.py ingest …` (PM-71)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_INTERRUPTED: Final = 130

if __name__ == "__main__":
    # Python puts a program's folder first in `sys.path`, so `import java` or `import metrics` would find this package's
    # modules.
    _here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _here]


def main() -> None:
    """Run `sharegroups metrics`, then end the process with its exit status (PM-39)."""
    import click  # noqa: PLC0415 - after the change of the path

    from kip932.printable import printable  # noqa: PLC0415 - as above
    from share_metrics.commands import metrics  # noqa: PLC0415

    try:
        metrics(prog_name="share_metrics", standalone_mode=False)
    except click.ClickException as error:
        text = printable(error.message, keep="\n\t")  # parts of it may be others' data (CT-82)
        error.message = text  # type: ignore[misc] # click declares it final, and reads it when it shows the error
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
