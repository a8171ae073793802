"""`make sbom`: which licences it refuses, and what it writes about an environment, without installing a lock."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tools import sbom


def package(name: str, licence: str) -> dict[str, str]:
    return {"Name": name, "Version": "1.0", "License": licence}


@pytest.mark.parametrize(
    "licence", ["MIT", "Apache-2.0 AND BSD-2-Clause", "(MIT OR Apache-2.0)", "Apache Software License; MIT License"]
)
def test_permitted_licences_pass_alone_and_together(licence: str) -> None:
    assert sbom.refused([package("a", licence)]) == []


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "UNKNOWN", "MIT AND GPL-2.0-only", "MIT OR AGPL-3.0-only", ""])
def test_another_licence_is_refused_with_the_name_of_its_package(licence: str) -> None:
    (line,) = sbom.refused([package("fine", "MIT"), package("other", licence)])
    assert line.startswith(f"other 1.0: {licence} ")


def test_an_exception_is_for_one_package_and_one_licence() -> None:
    ((name, licence),) = sbom.EXCEPTIONS.items()
    assert sbom.refused([package(name, licence)]) == []
    assert len(sbom.refused([package(name, "GPL-3.0-only"), package("other", licence)])) == 2


def test_every_exception_is_for_a_package_of_an_image() -> None:
    locked = "".join(lock.read_text(encoding="utf-8") for lock in sbom.LOCKS.values())
    assert [name for name in sbom.EXCEPTIONS if f"\n{canonicalize_name(name)}==" not in locked] == []


def made(environment: Path, **licences: str) -> None:
    """Make a virtual environment in which packages of these names and licences seem to be installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name, licence in licences.items():
        folder = packages / f"{name}-1.0.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: {licence}\n"
        (folder / "METADATA").write_text(text)


def test_the_command_writes_an_sbom_and_a_list_and_names_what_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(lock: Path, environment: Path) -> None:
        assert lock == sbom.LOCKS["services"]
        made(environment, fine="MIT", copyleft="GPL-3.0-only")

    monkeypatch.setattr(sbom, "OUT", tmp_path)
    monkeypatch.setattr(sbom, "install", install)
    assert sbom.main(["services"]) == 1
    assert capsys.readouterr().err.startswith("copyleft 1.0: GPL-3.0-only is not a permitted licence")
    found = json.loads((tmp_path / "services.cdx.json").read_text(encoding="utf-8"))
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "sharegroups"
    assert {(row["name"], row["version"], row["purl"]) for row in found["components"]} == {
        ("fine", "1.0", "pkg:pypi/fine@1.0"),
        ("copyleft", "1.0", "pkg:pypi/copyleft@1.0"),
    }
    rows = (tmp_path / "services-licences.md").read_text(encoding="utf-8").splitlines()
    assert [row.split("|")[1:4] for row in rows[2:]] == [
        [" copyleft ", " 1.0     ", " GPL-3.0-only "],
        [" fine     ", " 1.0     ", " MIT          "],
    ]


def test_an_image_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main(["service"]) == 1
    assert "services, pipeline" in capsys.readouterr().err
