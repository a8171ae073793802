"""The image's recipe without Docker: what the classic builder takes, who runs it, and pins that fit pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKER = ROOT / "deploy" / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("server", "cli", "speed")


def instructions() -> list[str]:
    """The Dockerfile's instructions, continued lines joined."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def pins() -> dict[str, str]:
    """Version by name."""
    lines = (DOCKER / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_stage_starts_from_the_base_that_was_given() -> None:
    assert [line.split()[1] for line in instructions() if line.startswith("FROM ")] == ["${BASE}", "${BASE}"]
    (default,) = [line for line in instructions() if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=python:\d+\.\d+\.\d+-slim-\w+", default), "the default names an exact version"


def test_the_classic_builder_takes_it() -> None:
    text = "\n".join(instructions())
    for word in ("--chmod", "--link", "--mount", "<<"):
        assert word not in text


def test_it_does_not_run_as_root_and_says_how_it_is() -> None:
    last_stage = instructions()[max(n for n, line in enumerate(instructions()) if line.startswith("FROM ")) :]
    (user,) = [line for line in last_stage if line.startswith("USER ")]
    assert re.fullmatch(r"USER [1-9]\d*:[1-9]\d*", user), "a number, so that Kubernetes can tell that it is not root"
    assert any(line.startswith("HEALTHCHECK ") and "share_node.health" in line for line in last_stage)


def test_what_is_installed_are_these_extras() -> None:
    (installed,) = re.findall(r"'sharegroups\[(.*?)\]'", "\n".join(instructions()))
    assert installed == ",".join(EXTRAS)
    assert f'"$wheel[{installed}]"' in (DOCKER / "image.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra])],
)
def test_what_the_project_needs_is_pinned_within_its_range(line: str) -> None:
    needed = Requirement(line)
    pinned = pins().get(canonicalize_name(needed.name))
    assert pinned is not None, f"{needed.name} has no pin; run: UPGRADE=1 make image"
    assert needed.specifier.contains(pinned), f"{needed.name}=={pinned} is not {needed.specifier}; UPGRADE=1 make image"
