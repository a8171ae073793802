"""Checks the Dockerfiles without running Docker: only syntax that the classic builder accepts, a non-root user, and
locks that satisfy pyproject.toml, with a hash for each package."""

import importlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKER = ROOT / "deploy" / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRA = PROJECT["optional-dependencies"]
#: The extras that each recipe installs, and their lock.
RECIPES = {
    "Dockerfile": (("server", "cli", "speed"), "lock.txt"),
    "pipeline.Dockerfile": (("cli", "metrics"), "pipeline-lock.txt"),
}
#: What builds Spark, which has no wheel.
BUILD_LOCK = "pipeline-build-lock.txt"
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


def instructions(recipe: str) -> list[str]:
    """Return the recipe's instructions, with continuation lines joined."""
    text = (DOCKER / recipe).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def last_stage(recipe: str) -> list[str]:
    lines = instructions(recipe)
    return lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]


def base_python() -> str:
    """Return the version of the base's Python."""
    (default,) = [line for line in instructions("Dockerfile") if line.startswith("ARG BASE=")]
    return default.removeprefix("ARG BASE=python:").partition("-")[0]


def needs(recipe: str) -> list[str]:
    """Return the project's requirements that the recipe installs."""
    return [*PROJECT["dependencies"], *(line for extra in RECIPES[recipe][0] for line in EXTRA[extra])]


def text_of(lock: str) -> str:
    return (DOCKER / lock).read_text(encoding="utf-8")


def faults(text: str, needed: Sequence[str]) -> list[str]:
    """Return what is wrong with a lock: a package without a hash, one that the project needs in another version or no
    longer, an option or URL of an index."""
    python = base_python()
    environment = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    found = ["a URL or an option"] if re.search(r"(?m)://|^-", text) else []
    pinned: dict[str, str] = {}
    surplus: set[str] = set()
    for entry in re.split(r"(?m)^(?=\w)", text)[1:]:
        package = Requirement(entry.partition("\\\n")[0])
        if not re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry):
            found.append(f"{package.name} has no hash")
        if package.marker is None or package.marker.evaluate(environment):
            pinned[canonicalize_name(package.name)] = str(package.specifier).removeprefix("==")
        if "sharegroups (pyproject.toml)" in entry:
            surplus.add(canonicalize_name(package.name))
    for line in needed:
        need = Requirement(line)
        surplus.discard(canonicalize_name(need.name))
        version = pinned.get(canonicalize_name(need.name))
        if version is None or not need.specifier.contains(version):
            found.append(f"{need.name}: needs {need.specifier}, has {version}")
    return found + [f"{name} is not needed" for name in surplus]


@every_recipe
def test_every_stage_starts_from_the_base_that_was_given(recipe: str) -> None:
    lines = instructions(recipe)
    first, last = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert first == "${BASE}"
    # The services' image is the first stage's files, made small.
    assert last == ("scratch" if recipe == "Dockerfile" else "${BASE}")
    assert (last == "scratch") == ("COPY --from=build / /" in last_stage(recipe))
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
def test_nothing_is_installed_that_the_lock_does_not_name(recipe: str) -> None:
    """Except the project's own wheel, of which nothing but itself is installed."""
    (build,) = [line for line in instructions(recipe) if "pip install" in line]
    *locked, own = [command for command in build.split("&&") if "pip install" in command]
    assert locked
    assert all("--no-index" in command and "--require-hashes" in command for command in locked)
    assert "--requirement /wheelhouse/lock.txt" in locked[-1]
    assert "--no-index --no-deps" in own
    assert own.split()[-1] == "/wheelhouse/sharegroups-*.whl"


@every_recipe
def test_no_stage_is_left_behind(recipe: str) -> None:
    lines = instructions(recipe)
    (label,) = [line.split()[1] for line in lines if line.startswith("LABEL ") and "stage" in line]
    assert lines.index(f"LABEL {label}") < lines.index(last_stage(recipe)[0]), "not on the image itself"
    script = (DOCKER / "image.sh").read_text(encoding="utf-8")
    built, pruned = script.index("docker build "), script.index(f"docker image prune --force --filter label={label}")
    assert built < pruned


#: A stand-in for Docker that has pulled the base from one registry, and keeps the words of each call in a file.
DOCKER_STAND_IN = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in *RepoDigests*) echo "$DIGEST" ;; esac
"""
#: A stand-in for the Python that builds the project's wheel.
BUILDS = """#!/bin/sh
touch "$7/sharegroups-0-py3-none-any.whl"
"""
DIGEST, OTHER = (f"python@sha256:{letter * 64}" for letter in "ab")


@pytest.mark.rule("CM-249")
@pytest.mark.parametrize("kind", ["services", "pipeline"])
@pytest.mark.parametrize(
    ("given", "digest", "expected"),
    [("", DIGEST, DIGEST), ("mine:1", DIGEST, DIGEST), (OTHER, DIGEST, OTHER), ("mine:1", "", "mine:1")],
    ids=["the default", "a tag", "a digest", "an image that no registry has"],
)
def test_the_image_is_built_on_a_digest_and_says_which(
    tmp_path: Path, kind: str, given: str, digest: str, expected: str
) -> None:
    """A tag can be moved while the image is built; Docker names what it has pulled by digest."""
    shutil.copytree(DOCKER, tmp_path / "deploy" / "docker")
    calls, programs = tmp_path / "calls", tmp_path / "bin"
    programs.mkdir()
    for name, text in (("docker", DOCKER_STAND_IN), ("builds", BUILDS)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": str(programs / "builds"), "CALLS": str(calls),
        "DIGEST": digest, "IMAGE_BASE": given,
    }  # fmt: skip
    words = ["sh", str(tmp_path / "deploy" / "docker" / "image.sh"), "made:1", kind]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert f"base: {expected}" in done.stdout.splitlines()
    lines = calls.read_text(encoding="utf-8").splitlines()
    (fetched,) = (line for line in lines if line.startswith("run ") and "--network host" in line)
    assert f" {expected} sh " in fetched, "the wheels are those for this base"
    (built,) = (line for line in lines if line.startswith("build "))
    assert f"--build-arg BASE={expected} --tag made:1" in built
    if kind == "services":
        assert any('base.name="${BASE}"' in line for line in last_stage("Dockerfile"))


@every_recipe
def test_the_wheels_are_those_of_the_recipes_lock(recipe: str) -> None:
    script = (DOCKER / "image.sh").read_text(encoding="utf-8")
    assert f"recipe=$here/{recipe} lock=$here/{RECIPES[recipe][1]}" in script
    assert all(
        "--require-hashes" in line for line in script.splitlines() if re.search(r"/pip (install|download)", line)
    )


def test_what_a_recipe_imports_is_there() -> None:
    """A module that had moved once broke the build of the image, which no machine without Docker notices."""
    imports = re.findall(
        r"from (\S+) import (\w+)", "\n".join(line for recipe in RECIPES for line in instructions(recipe))
    )
    assert imports
    assert [name for module, name in imports if not hasattr(importlib.import_module(module), name)] == []


@every_recipe
def test_the_lock_is_what_the_project_needs(recipe: str) -> None:
    assert faults(text_of(RECIPES[recipe][1]), needs(recipe)) == [], "run: make lock"


def test_what_builds_spark_is_locked() -> None:
    assert faults(text_of(BUILD_LOCK), ["setuptools"]) == [], "run: make lock"


#: A package as `make lock` writes it, with a hash and what needs it.
OLD = f"old==1 \\\n    --hash=sha256:{'0' * 64}\n    # via sharegroups (pyproject.toml)\n"


@pytest.mark.parametrize(
    ("written", "more", "fault"),
    [
        ("", ["a-new-one>=1"], "a-new-one: needs >=1, has None"),
        ("", ["grpcio>=99"], "grpcio: needs >=99, has 1"),
        (OLD, [], "old is not needed"),
        (OLD.replace("old", "unhashed").replace("sha256", "md5"), ["unhashed"], "unhashed has no hash"),
        ("--extra-index-url https://index.example/simple\n", [], "a URL"),
        ("--find-links wheels\n", [], "a URL or an option"),
    ],
    ids=["a dependency added", "a bound raised", "a dependency removed", "a hash missing", "a URL", "an option"],
)
def test_a_lock_that_is_wrong_is_found(written: str, more: list[str], fault: str) -> None:
    (found,) = faults(text_of("lock.txt") + written, [*needs("Dockerfile"), *more])
    assert found.startswith(fault)
