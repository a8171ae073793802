"""What `sharegroups up` says when it is ready and when it has stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from share_node import commands
from share_node.up import Ready, UpOptions


@pytest.mark.rule("CM-70")
@pytest.mark.parametrize(
    ("flags", "reason", "said"),
    [
        ((), "", "Stopped; data kept in {data}.\n"),
        (("--store", "redis://h:1"), "", "Stopped; data kept in the store.\n"),
        ((), "the store died", ""),
        (("--output", "json"), "", ""),
    ],
)
def test_stopping_says_where_the_data_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], reason: str, said: str
) -> None:
    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        on_ready(Ready("h:1", str(options.data), "unix:///s", 0, {}, 5))
        return reason

    monkeypatch.setattr(commands, "run_up", up)
    result = CliRunner().invoke(commands.up, ["--data", str(tmp_path), *flags])
    assert result.exit_code == (1 if reason else 0)
    ready, _, after = result.stdout.partition("Press Ctrl-C to stop.\n")
    assert after == said.format(data=tmp_path)
    assert ready.startswith("{" if "json" in flags else "sharegroups is ready at h:1 after 5 ms")
    assert ("The store, for `sharegroups metrics`: unix:///s\n" in ready) is (set(flags) == set())
    assert result.stderr == (f"Error: {reason}\n" if reason else "")
