"""The import contracts in pyproject.toml refuse every upward import. This is tried on a copy of the sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_tidy import ROOT

SOURCES = ("protos", "client", "services", "pipeline")
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join(str(folder / source) for source in SOURCES)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        (
            "services/shard_runtime/record_log/protocol.py",
            "import shard_runtime.hosting.shard_host",
            "A package of the runtime imports only packages below it",
        ),
        (
            "services/shard_runtime/rpc/bounds.py",
            "import shard_runtime.hosting.shard",
            "A package of the runtime imports only packages below it",
        ),
        (
            "services/share_persister/retry_rules.py",
            "import shard_runtime.rpc.bounds",
            "The persister needs the words and a clock",
        ),
        (
            "services/share_coordinator/config.py",
            "import share_persister.values",
            "Share coordinator and persister meet only in kip932",
        ),
        (
            "services/partition_leader/topic_log/reader.py",
            "import partition_leader.fetch.fetch",
            "A package of the partition leader imports only packages below it",
        ),
        (
            "services/partition_leader/share_partition/core/spans.py",
            "import partition_leader.fetch.fetch",
            "Cores are pure",
        ),
        (
            "services/shard_runtime/clock.py",
            "import share_coordinator.role",
            "services never import each other",
        ),
    ],
)
def test_a_planted_upward_import_is_refused_by_name(sources: Path, module: str, line: str, contract: str) -> None:
    path = sources / module
    text = path.read_text()
    path.write_text(f"{text}\n{line}\n")
    try:
        done = lint(sources)
    finally:
        path.write_text(text)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = done.stdout.partition("Broken contracts")[2]
    assert contract in " ".join(broken.split()), done.stdout


def test_without_it_all_contracts_are_kept(sources: Path) -> None:
    done = lint(sources)
    assert done.returncode == 0, done.stdout + done.stderr
