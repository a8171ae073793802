"""Makes the root file system of an image small, and writes what is in it: run in the build stage, by the base's Python.

python3 slim.py /opt/sharegroups /usr/share/sharegroups/sbom.cdx.json

Nothing is removed that runs: the packages of Debian that install and build others, what Python has for development, and
what shared libraries hold besides what is loaded (symbols, debug information). Debian's own list of packages is kept
up to date, so that scanners see what is there. Only the standard library is used, since nothing else is installed then.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

#: Name and version.
Package = tuple[str, str]

#: Packages of Debian that nothing here needs once the image is built. Those that a base lacks are skipped.
UNNEEDED: Final = (
    *("apt", "libapt-pkg6.0", "gpgv", "debian-archive-keyring", "adduser", "debconf", "perl-base", "openssl"),
    *("bash", "login", "passwd", "mount", "util-linux", "util-linux-extra", "bsdutils", "ncurses-bin", "diffutils"),
    *("e2fsprogs", "libext2fs2", "logsave", "libss2", "sysvinit-utils", "libpam-modules", "libpam-modules-bin"),
    *("libpam-runtime", "libpam0g", "libsemanage2", "libsemanage-common", "libsepol2", "libaudit1", "libaudit-common"),
    *("libgnutls30", "libp11-kit0", "libunistring2", "libidn2-0", "libnettle8", "libhogweed6", "libgmp10"),
    *("libtasn1-6", "libgcrypt20", "libgpg-error0", "libsystemd0", "libudev1", "libdb5.3", "libseccomp2"),
    *("python3-pip-whl", "python3-setuptools-whl", "python3-venv", "python3.11-venv", "python3-distutils"),
    *("python3-lib2to3", "libcap-ng0", "libsmartcols1", "libfdisk1", "libmount1", "libcap2"),
)
#: Folders of Python's library that only people who develop use, and those of tools that install packages.
DEVELOPMENT: Final = ("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "site-packages")
#: What is left of packages' documentation, translations, caches and logs.
LEFTOVERS: Final = (
    *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian"),
    *("usr/share/bash-completion", "usr/lib/x86_64-linux-gnu/perl-base", "usr/lib/x86_64-linux-gnu/gconv"),
    *("usr/share/python-wheels", "usr/share/perl5", "usr/local/include", "usr/local/share/man"),
    *("var/cache", "var/log", "var/lib/apt", "root/.cache"),
)
#: Files of wheels that are only for those who compile against them, and tests of packages.
SOURCES: Final = (".pyx", ".pxd", ".c", ".h", ".a")
TESTS: Final = ("tests", "test", "testing")
KEPT_TESTS: Final = ("click", "structlog")
_ELF: Final = b"\x7fELF"
_BITS64: Final = 2
_LOAD: Final = 1


def loaded_size(data: bytes) -> int:
    """Return how many bytes of an ELF file are ever loaded: the end of the last part that is. 0 for another file."""
    if data[:4] != _ELF or data[4] != _BITS64:
        return 0
    table, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    ends = [table + size * count]
    for number in range(count):
        kind, _, offset, _, _, in_file = struct.unpack_from("<IIQQQQ", data, table + number * size)
        if kind == _LOAD:
            ends.append(offset + in_file)
    return max(ends)


def stripped(data: bytes) -> bytes:
    """Return an ELF file without what is never loaded: symbols, debug information, and the table of sections."""
    end = loaded_size(data)
    if not end or end >= len(data):
        return data
    kept = bytearray(data[:end])
    struct.pack_into("<Q", kept, 40, 0)  # where the table of sections is
    struct.pack_into("<HH", kept, 60, 0, 0)  # how many there are, and which one has their names
    return bytes(kept)


def strip(folder: Path) -> None:
    """Strip the shared libraries of a folder."""
    for path in sorted(folder.rglob("*.so*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            small = stripped(data)
            if len(small) < len(data):
                path.write_bytes(small)


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def slim_debian(root: Path) -> None:
    """Purge the packages that nothing needs. Their scripts are not run: they need each other."""
    info = root / "var/lib/dpkg/info"
    for script in ("preinst", "postinst", "prerm", "postrm"):
        for path in info.glob(f"*.{script}"):
            path.unlink()
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\n"], capture_output=True, text=True, check=True
    ).stdout.split()
    there = [name for name in UNNEEDED if name in listed]
    done = subprocess.run(["dpkg", "--purge", "--force-all", *there], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"dpkg could not purge {' '.join(there)}:\n{done.stderr}")
    for name in LEFTOVERS:
        remove(root / name)


def slim_python(library: Path) -> None:
    """Remove what is for development from the base's Python, whose library is this folder."""
    for name in DEVELOPMENT:
        remove(library / name)
    for path in library.glob("config-*"):
        remove(path)


def slim_packages(packages: Path) -> None:
    """Remove sources and tests from installed packages."""
    for path in sorted(packages.rglob("*")):
        if path.suffix in SOURCES and path.is_file():
            path.unlink()
    for path in sorted(packages.glob("*/**/")):
        if path.name in TESTS and path.relative_to(packages).parts[0] not in KEPT_TESTS:
            remove(path)


def debian_packages() -> list[Package]:
    """Return name and version of each package of Debian that is installed."""
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(name, version) for name, version in map(str.split, done.stdout.splitlines())]


def python_packages(folder: Path) -> list[Package]:
    """Return name and version of each Python package in a folder."""
    return sorted({(each.metadata["Name"], each.version) for each in distributions(path=[str(folder)])})


def sbom(debian: Sequence[Package], python: Sequence[Package], release: str) -> dict[str, object]:
    """Return an SBOM in CycloneDX's format: Debian's packages, Python itself, and the packages that were installed.

    The same contents give the same text, so that two builds can be compared.
    """
    rows = [(name, version, f"pkg:deb/debian/{name}@{version}") for name, version in debian]
    rows += [(name, version, f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}") for name, version in python]
    rows.append(("python", release, f"pkg:generic/python@{release}"))
    components = [
        {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        for name, version, purl in sorted(rows, key=lambda row: row[2])
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(each["purl"] for each in components))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "sharegroups"}},
        "components": components,
    }


def main(environment: str, out: str) -> None:
    """Write the SBOM, then make everything small."""
    (packages,) = Path(environment).glob("lib/python3*/site-packages")
    slim_packages(packages)
    strip(packages)
    slim_python(Path(sysconfig.get_paths()["stdlib"]))
    slim_debian(Path("/"))
    release = sys.version.split()[0]
    text = json.dumps(sbom(debian_packages(), python_packages(packages), release), indent=1, sort_keys=True)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
