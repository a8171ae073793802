"""The command `top`: one table, JSON, and what is missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kip932.errors import KafkaError
from sharegroups.cli.top import command
from sharegroups.cli.top.cluster_source import ClusterSource
from sharegroups.cli.top.views import Overview
from sharegroups.errors import NetworkError
from sharegroups.insight.rows import rows_of
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.insight.samples import groups, page, progress

from .pictures import compare_text, overview


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Overview | KafkaError], None]:
    """Let the cluster answer with this."""

    def show(found: Overview | KafkaError) -> None:
        async def answer(self: ClusterSource) -> Overview:
            if isinstance(found, KafkaError):
                raise found
            return found

        monkeypatch.setattr(ClusterSource, "overview", answer)

    return show


@pytest.mark.rule("CT-160")
def test_once_prints_one_table(fake: FakeCluster, shown: Callable[[Overview], None]) -> None:
    shown(overview())
    result = sharegroups("top", "--once")
    assert (result.exit_code, result.stderr) == (0, "")
    compare_text(result.stdout, "once")


@pytest.mark.rule("CT-160")
def test_json_is_for_programs(fake: FakeCluster, shown: Callable[[Overview], None]) -> None:
    shown(overview())
    result = sharegroups("top", "--output", "json")
    rows = {row["group"]: row for row in json.loads(result.stdout)}
    assert (result.exit_code, list(rows)) == (0, ["billing", "workers", "mailer", "search", "nightly", "audit"])
    assert rows["mailer"] == {
        "group": "mailer", "topic": "parcels", "state": "Stable", "members": 1, "lag": 41, "oldest_ms": 1_980_000,
        "in_flight": 1, "delayed": 40, "given_up": 0, "dead_letters": 0, "at_least": False, "arriving_per_s": 0.3,
        "finishing_per_s": 0.3, "drained_in_ms": None, "drains_never": True, "why": "held 31 min by w-7",
    }  # fmt: skip
    nightly = rows["nightly"]
    assert (nightly["topic"], nightly["lag"], nightly["arriving_per_s"], nightly["members"]) == (None, None, None, 0)


@pytest.mark.rule("CT-160")
def test_what_is_missing_is_an_error(fake: FakeCluster, shown: Callable[[Overview | KafkaError], None]) -> None:
    shown(overview()._replace(problems=("Node n:1 did not answer.",), left_out=7_000))
    result = sharegroups("top", "--once")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 9)
    assert "Error: 7,000 more rows were left out" in result.stderr
    assert "Error: Node n:1 did not answer." in result.stderr
    shown(NetworkError("gone"))
    result = sharegroups("top", "--once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "gone" in result.stderr


@pytest.mark.rule("CT-160", "CT-82")
def test_without_groups_it_says_so_and_names_are_escaped(fake: FakeCluster, shown: Callable[[Overview], None]) -> None:
    """Covers of CT-82 the names of groups and topics in this table."""
    shown(Overview(()))
    result = sharegroups("top", "--once")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "There is no share group here" in result.stderr
    shown(Overview(rows_of(page(progress("\x1b[2J", "t\u202e", lag=1)), groups())))
    assert "\\x1b[2J" in sharegroups("top", "--once").stdout


@pytest.mark.rule("CT-160")
def test_a_real_answer_is_printed(fake: FakeCluster) -> None:
    fake.add_member("m1", "g")
    result = sharegroups("top", "--once")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split()[0] == "g"


@pytest.mark.rule("CT-157")
def test_the_screen_needs_a_terminal(fake: FakeCluster) -> None:
    result = sharegroups("top")
    assert (result.exit_code, "sharegroups top --once" in result.stderr) == (1, True)


@pytest.mark.rule("CT-157")
def test_without_textual_it_says_what_to_install_and_once_works(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("sharegroups.cli.top.")]:
        if name.rpartition(".")[2] in {"app", "screens"}:
            monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)  # as if it were not installed
    result = sharegroups("top")
    assert (result.exit_code, "pip install '.[cli,top]'" in result.stderr) == (1, True)
    assert sharegroups("top", "--once").exit_code == 0


@pytest.mark.rule("CT-157")
def test_the_screen_ends_with_the_status_of_the_application(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def shown(source: ClusterSource) -> int:
        assert isinstance(source, ClusterSource)
        return 143

    def screen() -> Callable[[Any], Awaitable[int]]:
        return shown

    monkeypatch.setattr(command, "_screen", screen)
    monkeypatch.setattr(command, "_is_terminal", lambda: True)
    assert sharegroups("top").exit_code == 143
