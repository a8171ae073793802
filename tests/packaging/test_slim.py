"""deploy/docker/slim.py, which makes the image small: libraries still load, and only what nothing needs is removed.

What it does to Debian is shown by the image's own tests, since a machine of a person is not to lose its packages.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
import uvloop.loop

PATH = Path(__file__).parents[2] / "deploy" / "docker" / "slim.py"


@pytest.fixture(scope="module")
def slim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slim", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_library_without_what_is_never_loaded_still_loads(slim: ModuleType, tmp_path: Path) -> None:
    whole = Path(uvloop.loop.__file__).read_bytes()
    small = slim.stripped(whole)
    assert len(small) < len(whole)
    assert slim.stripped(small) == small
    path = tmp_path / "loop.so"
    path.write_bytes(small)
    assert ctypes.CDLL(str(path)).PyInit_loop is not None


def test_other_files_stay_as_they_are(slim: ModuleType, tmp_path: Path) -> None:
    for data in (b"", b"#!/bin/sh\n", b"\x7fELF\x01" + bytes(100)):
        assert slim.stripped(data) == data
    (tmp_path / "a.so").write_bytes(b"text")
    (tmp_path / "b.so").symlink_to("a.so")
    slim.strip(tmp_path)
    assert (tmp_path / "a.so").read_bytes() == b"text"
    assert (tmp_path / "b.so").is_symlink()


def test_sources_and_tests_of_packages_are_removed_and_no_module(slim: ModuleType, tmp_path: Path) -> None:
    kept = ["fast/loop.so", "fast/loop.py", "fast/py.typed", "click/testing.py", "click/testing/x.py", "tests.py"]
    gone = ["fast/loop.pyx", "fast/includes/uv.pxd", "fast/core.c", "fast/tests/test_a.py", "deep/in/tests/x/y.py"]
    for name in [*kept, *gone]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    slim.slim_packages(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


def test_pythons_own_tests_and_installers_are_removed(slim: ModuleType, tmp_path: Path) -> None:
    for name in ("test/a.py", "ensurepip/b.whl", "site-packages/pip/c.py", "config-3.11/lib.a", "json/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    slim.slim_python(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["json"]


def test_the_sbom_names_every_package_once_and_is_the_same_for_the_same_contents(slim: ModuleType) -> None:
    debian = [("libc6", "2.36-9"), ("zlib1g", "1:1.2.13")]
    python = [("structlog", "26.1.0"), ("typing_extensions", "4.16.0")]
    made = slim.sbom(debian, python, "3.11.14")
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert [each["purl"] for each in made["components"]] == [
        "pkg:deb/debian/libc6@2.36-9",
        "pkg:deb/debian/zlib1g@1:1.2.13",
        "pkg:generic/python@3.11.14",
        "pkg:pypi/structlog@26.1.0",
        "pkg:pypi/typing-extensions@4.16.0",
    ]
    assert json.dumps(made) == json.dumps(slim.sbom(debian[::-1], python[::-1], "3.11.14"))
    assert made["serialNumber"] != slim.sbom(debian, python, "3.11.15")["serialNumber"]


def test_what_is_installed_is_read_from_its_folder(slim: ModuleType) -> None:
    found = dict(slim.python_packages(Path(uvloop.__file__).parents[1]))
    assert found["uvloop"] == version("uvloop")


def test_no_package_that_runs_something_is_named(slim: ModuleType) -> None:
    """The scripts of the manifests, preStop and probes need these."""
    needed = {"coreutils", "findutils", "dash", "libc6", "libssl3", "ca-certificates", "tzdata", "dpkg", "tar", "grep"}
    assert not needed & set(slim.UNNEEDED)
    assert len(set(slim.UNNEEDED)) == len(slim.UNNEEDED)
