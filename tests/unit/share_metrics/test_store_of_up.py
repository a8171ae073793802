"""`--up DIR` of `sharegroups metrics`: the store that runs on an `up`'s data directory."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from share_metrics.commands import chosen_store, metrics
from share_metrics.ingest.store_of_up import NoStoreError
from share_node.state.dump import embedded_url


def store_url(store: str | None, up: Path | None) -> str:
    return chosen_store(store, None, up)[0]


def _running(folder: Path) -> Path:
    """Write `up`'s note of its store into a data directory; return the store's socket."""
    socket = folder / "sharegroups-1" / "store.sock"
    socket.parent.mkdir()
    socket.touch()
    (folder / "store.socket-dir").write_text(f"{socket.parent}\n")
    return socket


def test_the_store_that_runs_on_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoStoreError, match=f"no embedded store runs on {tmp_path}; start `sharegroups up --data"):
        store_url(None, tmp_path)
    socket = _running(tmp_path)
    assert store_url(None, tmp_path) == f"unix://{socket}"
    assert embedded_url(tmp_path) == f"unix://{socket}", "as `sharegroups state --data` finds it"
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert store_url(None, Path("~") / tmp_path.name) == f"unix://{socket}", "as cron writes it"
    socket.unlink()
    with pytest.raises(NoStoreError):
        store_url(None, tmp_path)


def test_a_url_is_taken_as_it_is() -> None:
    assert store_url("redis://h:1", None) == "redis://h:1"
    with pytest.raises(click.UsageError, match="not both"):
        store_url("redis://h:1", Path("d"))


@pytest.mark.parametrize(
    "words", [["ingest", "--data", "d"], ["replay", "--group", "g", "--topic", "t", "--partition", "0"]]
)
def test_commands(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(metrics, words)
    assert (result.exit_code, "Missing option" in result.output, "--up DIR" in result.output) == (2, True, True)
    result = CliRunner().invoke(metrics, [*words, "--up", str(tmp_path)])
    assert (result.exit_code, f"no embedded store runs on {tmp_path}" in result.output) == (4, True)
    socket = _running(tmp_path)
    result = CliRunner().invoke(metrics, [*words, "--up", str(tmp_path)])
    assert (result.exit_code, str(socket) in result.output) == (4, True), "it is asked: no process listens there"
