"""Checks the Dockerfiles without running Docker: only syntax that the classic builder accepts, a non-root user, and
pins that satisfy pyproject.toml."""

import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKER = ROOT / "deploy" / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRA = PROJECT["optional-dependencies"]
#: The extras that each recipe installs, and the file that pins their versions.
RECIPES = {
    "Dockerfile": (("server", "cli", "speed"), "constraints.txt"),
    "pipeline.Dockerfile": (("cli", "metrics"), "pipeline-constraints.txt"),
}
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


def instructions(recipe: str) -> list[str]:
    """Return the recipe's instructions, with continuation lines joined."""
    text = (DOCKER / recipe).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def last_stage(recipe: str) -> list[str]:
    lines = instructions(recipe)
    return lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]


def pins(recipe: str) -> dict[str, str]:
    """Return the pinned versions by name."""
    lines = (DOCKER / RECIPES[recipe][1]).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@every_recipe
def test_every_stage_starts_from_the_base_that_was_given(recipe: str) -> None:
    lines = instructions(recipe)
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}", "${BASE}"]
    (default,) = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=python:\d+\.\d+\.\d+-slim-\w+", default), "the default names an exact version"


def test_all_images_have_one_base() -> None:
    defaults = {line for recipe in RECIPES for line in instructions(recipe) if line.startswith("ARG BASE=")}
    assert len(defaults) == 1


@every_recipe
def test_the_classic_builder_takes_it(recipe: str) -> None:
    text = "\n".join(instructions(recipe))
    for word in ("--chmod", "--link", "--mount", "<<"):
        assert word not in text


@every_recipe
def test_it_does_not_run_as_root(recipe: str) -> None:
    (user,) = [line for line in last_stage(recipe) if line.startswith("USER ")]
    assert re.fullmatch(r"USER [1-9]\d*:[1-9]\d*", user), "a number, so that Kubernetes can check that it is not root"


def test_the_services_say_how_they_are() -> None:
    lines = last_stage("Dockerfile")
    assert any(line.startswith("HEALTHCHECK ") and "share_node.health" in line for line in lines)


@every_recipe
def test_what_is_installed_are_these_extras(recipe: str) -> None:
    """`image.sh` reads them from the recipe."""
    (installed,) = re.findall(r"'sharegroups\[(.*?)\]'", "\n".join(instructions(recipe)))
    assert installed == ",".join(RECIPES[recipe][0])
    script = (DOCKER / "image.sh").read_text(encoding="utf-8")
    assert f"recipe=$here/{recipe} constraints=$here/{RECIPES[recipe][1]}" in script


def needs() -> Iterator[tuple[str, str]]:
    """Yield each recipe with each project requirement that it installs."""
    for recipe, (extras, _) in RECIPES.items():
        for line in (*PROJECT["dependencies"], *(line for extra in extras for line in EXTRA[extra])):
            yield recipe, line


@pytest.mark.parametrize(("recipe", "line"), list(needs()))
def test_what_the_project_needs_is_pinned_within_its_range(recipe: str, line: str) -> None:
    needed = Requirement(line)
    pinned = pins(recipe).get(canonicalize_name(needed.name))
    again = "UPGRADE=1 make image" + ("" if recipe == "Dockerfile" else "-pipeline")
    assert pinned is not None, f"{needed.name} has no pin; run: {again}"
    assert needed.specifier.contains(pinned), f"{needed.name}=={pinned} is not {needed.specifier}; run: {again}"


@every_recipe
def test_the_python_code_in_it_runs(recipe: str) -> None:
    """Its modules and names exist: nothing else would notice a move before an image is built."""
    for code in re.findall(r"python3? -c '([^']+)'", "\n".join(instructions(recipe))):
        exec(compile(code, recipe, "exec"), {})
    for module in re.findall(r'"-m", "([\w.]+)"', "\n".join(instructions(recipe))):
        assert find_spec(module) is not None, module
