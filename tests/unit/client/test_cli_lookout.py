"""What a person is told when no record comes: once per kind of trouble, and without being asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kip932.ids import TopicIdPartition
from sharegroups.cli import clients
from sharegroups.cli.lookout import LOOK_AFTER_S, Finding, Lookout, find_trouble
from sharegroups.cli.main import main
from tests.unit.client.fake_cluster import FakeCluster

GIVEN = {"bootstrap.servers": "node0:9000", "group.id": "g", "default.api.timeout.ms": "10000"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    monkeypatch.setattr(clients, "open_client", lambda kind, settings: kind(settings, transport=cluster.transport()))
    return cluster


def test_a_topic_that_is_served_is_no_trouble(fake: FakeCluster) -> None:
    assert find_trouble(GIVEN, "t") is None


def test_trouble_names_what_was_found_where_and_what_to_try(fake: FakeCluster) -> None:
    unknown = find_trouble(GIVEN, "nope")
    assert unknown is not None
    for words in ("'nope' does not exist", "node0:9000", "sharegroups topics create nope", "--topic"):
        assert words in unknown.text
    topic_id, _ = fake.topics["t"]
    fake.leaders[TopicIdPartition(topic_id, 1)] = (-1, -1)
    leaderless = find_trouble(GIVEN, "t")
    assert leaderless is not None
    assert "no live leader for partition 1." in leaderless.text


def test_a_cluster_that_is_down_is_named(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroups.cli.lookout._ASK_MS", 50)
    found = find_trouble(GIVEN | {"bootstrap.servers": "nobody:1"}, "t")
    assert found is not None
    for words in ("no cluster answers at nobody:1", "sharegroups up", "--bootstrap-server"):
        assert words in found.text


def _lookout(findings: list[Finding | None]) -> tuple[Lookout, list[str]]:
    told: list[str] = []
    return Lookout(lambda: findings.pop(0), told.append, 100.0), told


def test_it_looks_after_a_silence_that_grows_and_tells_each_kind_once() -> None:
    down, again, unknown = Finding("unreachable", "down"), Finding("unreachable", "down!"), Finding("unknown", "nope")
    findings: list[Finding | None] = [down, again, None, unknown]
    lookout, told = _lookout(findings)
    lookout.silent(100.0 + LOOK_AFTER_S / 2)
    assert told == []
    lookout.silent(100.0 + LOOK_AFTER_S)
    assert told == ["down"]
    lookout.silent(100.0 + LOOK_AFTER_S * 2.5)
    assert len(findings) == 3
    lookout.silent(100.0 + LOOK_AFTER_S * 3)
    lookout.silent(100.0 + LOOK_AFTER_S * 7)
    lookout.silent(100.0 + LOOK_AFTER_S * 15)
    assert told == ["down", "nope"]


def test_records_make_it_forget_what_it_told() -> None:
    down = Finding("unreachable", "down")
    lookout, told = _lookout([down, down])
    lookout.silent(100.0 + LOOK_AFTER_S)
    lookout.heard(200.0)
    lookout.silent(200.0 + LOOK_AFTER_S)
    assert told == ["down", "down"]


def test_giving_up_asks_unless_the_reason_was_told() -> None:
    lookout, told = _lookout([Finding("unknown", "nope")])
    assert lookout.gave_up()
    assert lookout.gave_up()
    assert told == ["nope"]
    assert not _lookout([None])[0].gave_up()


def _run(*words: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", "node0:9000"], input=stdin)
    return result.exit_code, result.stderr


@pytest.mark.rule("CT-30")
def test_consume_says_why_nothing_came_and_fails(fake: FakeCluster) -> None:
    status, told = _run("consume", "--topic", "nope", "--timeout-ms", "1")
    assert status == 1
    assert told.startswith("Warning: topic 'nope' does not exist")
    assert told.endswith("Processed a total of 0 messages\n")
    assert _run("consume", "--topic", "t", "--timeout-ms", "1") == (0, "Processed a total of 0 messages\n")


@pytest.mark.rule("CM-72")
def test_produce_says_at_once_that_the_topic_is_not_there(fake: FakeCluster) -> None:
    status, told = _run("produce", "nope", "--property", "max.block.ms=1", stdin="a\n")
    assert status == 1
    assert told.startswith("Warning: topic 'nope' does not exist")
    assert "was not found within 1 ms" in told


@pytest.mark.rule("CM-72")
def test_a_tool_names_what_to_try_when_the_cluster_is_down(fake: FakeCluster, tmp_path: Path) -> None:
    hurried = tmp_path / "client.properties"
    hurried.write_text("default.api.timeout.ms=1\nbootstrap.servers=nobody:1\n")
    status, told = _run("topics", "list", "--command-config", str(hurried))
    assert status == 1
    assert told.startswith("Error: Listing topics failed due to ")
    assert told.endswith("Is the cluster up (`sharegroups up`), and is --bootstrap-server right?\n")
