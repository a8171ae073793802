"""What a person is told when no record comes: once per kind of trouble, and without being asked."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip932.ids import TopicIdPartition
from sharegroups.cli.main import main
from sharegroups.cli.stall_warning import Warnings, find_trouble, text_of
from sharegroups.core.stall_diagnosis import UNKNOWN, UNREACHABLE, Trouble
from tests.support.fake_cluster.cluster import FakeCluster

GIVEN = {"bootstrap.servers": "node0:9000", "group.id": "g", "default.api.timeout.ms": "10000"}


def test_a_topic_that_is_served_is_no_trouble(fake: FakeCluster) -> None:
    assert find_trouble(GIVEN, "t") is None


def test_trouble_names_what_was_found_where_and_what_to_try(fake: FakeCluster) -> None:
    unknown = find_trouble(GIVEN, "nope")
    assert unknown is not None
    for words in ("'nope' does not exist", "node0:9000", "sharegroups topics create nope", "--topic"):
        assert words in text_of(unknown)
    topic_id, _ = fake.topics["t"]
    fake.leaders[TopicIdPartition(topic_id, 1)] = (-1, -1)
    leaderless = find_trouble(GIVEN, "t")
    assert leaderless is not None
    assert "no live leader for partition 1." in text_of(leaderless)


def test_a_cluster_that_is_down_is_named(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroups.cli.stall_warning._ASK_MS", 50)
    found = find_trouble(GIVEN | {"bootstrap.servers": "nobody:1"}, "t")
    assert found is not None
    for words in ("no cluster answers at nobody:1", "sharegroups up", "--bootstrap-server"):
        assert words in text_of(found)


def _tell(trouble: Trouble) -> None:
    logging.getLogger("sharegroups.aio.stall_watch").warning("%s", trouble.text(), extra={"trouble": trouble})


def test_what_the_library_tells_is_shown_in_the_command_line_s_words(capsys: pytest.CaptureFixture[str]) -> None:
    with Warnings():
        _tell(Trouble(UNREACHABLE, "a:1", detail="why"))
        logging.getLogger("sharegroups.aio.sender").error("lost")
    logging.getLogger("sharegroups").info("not shown")
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "Warning: no cluster answers at a:1 (why). Start one with `sharegroups up`, or correct --bootstrap-server."
    )
    assert second == "Warning: lost"


def test_giving_up_says_why_unless_that_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    down, again, unknown = (
        Trouble(UNREACHABLE, "a:1", detail="x"),
        Trouble(UNREACHABLE, "a:1", detail="y"),
        Trouble(UNKNOWN, "a:1", ("t",)),
    )
    with Warnings() as warnings:
        _tell(down)
        warnings.last(again)
        _tell(down)
    assert len(capsys.readouterr().err.splitlines()) == 1
    with Warnings() as warnings:
        _tell(down)
        warnings.last(unknown)
    assert len(capsys.readouterr().err.splitlines()) == 2


def _run(*words: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", "node0:9000"], input=stdin)
    return result.exit_code, result.stderr


@pytest.mark.rule("CT-30")
def test_consume_says_why_nothing_came_and_fails(fake: FakeCluster) -> None:
    status, told = _run("consume", "--topic", "nope", "--group", "g", "--timeout-ms", "1")
    assert status == 1
    assert told.startswith("Warning: topic 'nope' does not exist")
    assert told.endswith("Processed a total of 0 messages\n")
    assert _run("consume", "--topic", "t", "--group", "g", "--timeout-ms", "1") == (
        0,
        "Processed a total of 0 messages\n",
    )


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
