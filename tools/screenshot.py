"""`make screenshot`: takes screenshots of a page of the pipeline, for the docs: one light, one dark.

python -m tools.screenshot --page docs/images/page.html --out docs/images     # report-light.png and report-dark.png
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

#: Width and height, pixels: the page down to how long records took, as shown in the docs.
SIZE: Final = (1100, 2240)
BYTES_MAX: Final = 300_000
_BOUND_S: Final = 120


def main(arguments: list[str] | None = None) -> int:
    """Write both pictures. Returns the exit status."""
    options = _parser().parse_args(arguments)
    browser = chromium()
    if browser is None:
        print("This needs Chromium: apt-get install chromium, or any Chrome on the PATH.", file=sys.stderr)
        return 1
    if not options.page.is_file():
        print(f"There is no {options.page}; run `make demo` and `make report` first.", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        picture = options.out / f"report-{scheme}.png"
        photograph(browser, options.page, picture, dark=scheme == "dark")
        size = picture.stat().st_size
        if size > BYTES_MAX:
            print(f"{picture} has {size:,} bytes, more than {BYTES_MAX:,}.", file=sys.stderr)
            return 1
        print(f"{picture}: {size:,} bytes")
    return 0


def chromium() -> str | None:
    """Return the path of the browser; None if none is installed."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def headless(browser: str, profile: Path, *, dark: bool) -> list[str]:
    """Return the start of a command that runs the browser without a window, also as root, with a separate profile."""
    scheme = f"--blink-settings=preferredColorScheme={int(not dark)}"
    return [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", scheme]


def photograph(browser: str, page: Path, picture: Path, *, dark: bool) -> None:
    """Write a picture of the page in a window of SIZE. Raises subprocess.SubprocessError or FileNotFoundError."""
    with tempfile.TemporaryDirectory(prefix="screenshot-") as folder:
        made = Path(folder) / "picture.png"
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        command = [*headless(browser, Path(folder) / "profile", dark=dark), "--hide-scrollbars", size]
        command += [f"--screenshot={made}", page.resolve().as_uri()]
        subprocess.run(command, capture_output=True, timeout=_BOUND_S, check=True)
        picture.write_bytes(made.read_bytes())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshot", description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("report.html"), help="the page that `make report` wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="the folder of the pictures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
