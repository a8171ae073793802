"""The contents of the wheel: names, generated modules, the licence, and only the declared dependencies."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAMES = {
    "sharegroups",
    "kip932",
    "shard_runtime",
    "share_persister",
    "transaction_coordinator",
    "kafka_listener",
    "group_coordinator",
    "share_coordinator",
    "partition_leader",
    "share_node",
    "share_metrics",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    result = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def wheel_names(built: Path) -> list[str]:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        return wheel.namelist()


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_brings_these_top_level_names_and_no_others(wheel_names: list[str]) -> None:
    assert {name.split("/")[0] for name in wheel_names if ".dist-info/" not in name} == NAMES


def test_generated_modules_are_in_the_wheel(wheel_names: list[str]) -> None:
    protos = sorted(path.relative_to(ROOT / "protos") for path in (ROOT / "protos/kip932").rglob("*.proto"))
    assert protos != []
    for proto in protos:
        module = proto.with_suffix("").as_posix() + "_pb2"
        assert {f"{module}.py", f"{module}.pyi"} <= set(wheel_names)


def test_types_are_shipped(wheel_names: list[str]) -> None:
    assert "kip932/py.typed" in wheel_names
    assert "sharegroups/py.typed" in wheel_names


def test_the_licence_is_in_the_wheel(wheel_names: list[str], metadata: Message) -> None:
    assert any(name.endswith("/licenses/LICENSE") for name in wheel_names)
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_client_library_needs_grpcio_and_protobuf_only(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist") or []
    base = {line.split(">")[0].split("<")[0].strip() for line in required if "extra ==" not in line}
    assert base == {"grpcio", "protobuf"}


def test_what_builds_is_pinned_alike_for_the_build_and_for_developers() -> None:
    build = set(PROJECT["build-system"]["requires"])
    assert build <= set(PROJECT["project"]["optional-dependencies"]["dev"])


def test_the_source_distribution_can_build_and_carries_no_environment(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"hatch_build.py", "pyproject.toml", "LICENSE", "README.md"} <= names
    assert "protos/kip932/api/v1/share_fetch.proto" in names
    assert not any(name.startswith((".venv", "tests", ".git/")) for name in names)
