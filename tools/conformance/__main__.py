"""Write or check how far tests show the rules of docs/spec.

    python -m tools.conformance --write     # what `make docs` does: the summary, docs/contributing/conformance.md
    python -m tools.conformance --whole     # what `make conformance` does: build/conformance.md, with the tests
    python -m tools.conformance --check     # exit 1 when the summary differs, or a rule is neither cited nor listed

Each has pytest collect the tests, which takes about 15 seconds; no test runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.conformance.citations import Cited
from tools.conformance.page import SUMMARY, WHOLE, errors, summary, whole
from tools.conformance.plugin import load

ROOT = Path(__file__).resolve().parents[2]
_COLLECT_S = 300


def collected(root: Path) -> Cited:
    """Return what the tests below `root` cite. Raises SystemExit with pytest's output when they cannot be collected."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cited.json"
        words = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--conformance-out={out}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, "tests"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=_COLLECT_S,
            check=False,
        )
        if done.returncode or not out.exists():
            raise SystemExit(f"pytest could not collect the tests (exit {done.returncode}):\n{done.stdout[-4000:]}")
        return load(out)


def main(arguments: list[str] | None = None) -> int:
    """Write or check a page. Returns 1 when the check fails, or when markers or judgements are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__.partition("\n")[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help=f"write {SUMMARY}")
    action.add_argument("--whole", action="store_true", help=f"write {WHOLE}")
    action.add_argument("--check", action="store_true", help=f"exit 1 when {SUMMARY} is not what would be written")
    options = parser.parse_args(arguments)
    cited = collected(ROOT)
    if wrong := errors(ROOT, cited):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if options.check:
        path, text = ROOT / SUMMARY, summary(ROOT)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return 0
        print(f"{SUMMARY} is not what docs/spec and tests/conformance say now. Run: make docs", file=sys.stderr)
        return 1
    path, text = (ROOT / SUMMARY, summary(ROOT)) if options.write else (ROOT / WHOLE, whole(ROOT, cited))
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
