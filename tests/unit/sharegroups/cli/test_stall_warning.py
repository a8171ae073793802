"""A person is warned when no record arrives: once per kind of trouble, without asking."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from kip932.errors import NotCoordinatorError, RequestTimedOutError
from kip932.handshakes import SLOW
from kip932.ids import TopicIdPartition
from kip932.rpc.grpc_transport import GrpcTransport
from sharegroups.cli.main import main
from sharegroups.cli.output import failures
from sharegroups.cli.stall_warning import Warnings, find_trouble, text_of
from sharegroups.connection.core.stall_diagnosis import UNKNOWN, UNREACHABLE, Trouble
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups

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
    found = find_trouble(GIVEN | {"bootstrap.servers": "unknown:1"}, "t")
    assert found is not None
    for words in ("no cluster answers at unknown:1", "sharegroups up", "--bootstrap-server"):
        assert words in text_of(found)


def test_consuming_for_a_group_that_no_coordinator_serves_ends_as_an_error_that_names_it(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharegroups.cli.stall_warning._ASK_MS", 200)
    for call in ("heartbeat", "describe"):
        fake.errors[call].extend([NotCoordinatorError.code] * 1_000)
    result = sharegroups("consume", "--topic", "t", "--group", "my group", "--timeout-ms", "50")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("Warning: no coordinator at node0:9000 serves group 'my group' (") == 1
    for words in ("has refused for 0.2 s", "sharegroups state check"):
        assert words in result.stderr


def test_no_records_of_a_group_that_is_served_are_no_error(fake: FakeCluster) -> None:
    result = sharegroups("consume", "--topic", "t", "--group", "g", "--timeout-ms", "50")
    assert (result.exit_code, result.stderr) == (0, "Processed a total of 0 messages\n")


@pytest.mark.rule("CT-85")
def test_a_partition_whose_state_is_in_quarantine_is_reported_when_the_time_is_over(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 2, partition=number)
        consumed(fake, "t", number, 1)
    fake.stateless[fake.partition("t", 1)] = "the stored state of g is in quarantine: see `sharegroups state check`"
    result = sharegroups("consume", "--topic", "t", "--group", "g", "--timeout-ms", "300")
    assert (result.exit_code, len(result.stdout.split())) == (1, 2)
    assert result.stderr == (
        "Warning: group 'g' gets nothing from t-1: COORDINATOR_NOT_AVAILABLE: the stored state of g is in quarantine: "
        "see `sharegroups state check`\nProcessed a total of 2 messages\n"
    )
    fake.add_topic("u", 1)
    assert sharegroups("consume", "--topic", "u", "--group", "g", "--timeout-ms", "50").exit_code == 0, "not its topic"


CANNOT_BE = (
    "topic name 'my orders' cannot be: a name has 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'"
)


@pytest.mark.rule("CL-93", "CT-81")
def test_a_topic_name_that_cannot_be_is_refused_at_once(fake: FakeCluster) -> None:
    consumed_ = sharegroups("consume", "my orders", "--group", "g", "--timeout-ms", "60000")
    assert (consumed_.exit_code, consumed_.stdout) == (1, "")
    assert consumed_.stderr == f"Error: Consuming failed: {CANNOT_BE}\nProcessed a total of 0 messages\n"
    produced = sharegroups("produce", "my orders", stdin="a\n")
    assert (produced.exit_code, produced.stdout, produced.stderr) == (
        1, "", f"Error: Producing failed: {CANNOT_BE}\n"
    )  # fmt: skip
    for words in (
        ("perf", "produce", "--topic", "my orders", "--num-records", "1"),
        ("perf", "consume", "--topic", "my orders", "--num-records", "1", "--timeout", "60000"),
        ("verify-consumer", "--topic", "my orders", "--group-id", "g", "--max-messages", "1"),
        ("topics", "describe", "my orders"),
    ):
        result = sharegroups(*words)
        assert result.exit_code == 1
        assert CANNOT_BE in result.stderr, words


def _report(trouble: Trouble) -> None:
    logging.getLogger("sharegroups.consuming.stall_watch").warning("%s", trouble.text(), extra={"trouble": trouble})


def test_what_the_library_shows_is_shown_in_the_command_line_s_words(capsys: pytest.CaptureFixture[str]) -> None:
    with Warnings():
        _report(Trouble(UNREACHABLE, "a:1", detail="why"))
        logging.getLogger("sharegroups.producing.sender").error("lost")
    logging.getLogger("sharegroups").info("not shown")
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "Warning: no cluster answers at a:1 (why). Start one with `sharegroups up`, or correct --bootstrap-server."
    )
    assert second == "Warning: lost"


@pytest.mark.rule("CL-182")
def test_a_cause_that_lasts_is_shown_again_though_the_command_has_shown_it(capsys: pytest.CaptureFixture[str]) -> None:
    closed = "x (it closed the new connection at once; if it serves TLS, security.protocol=SSL is missing here)"
    refused = Trouble(UNREACHABLE, "a:1", detail=closed)
    with Warnings() as warnings:
        warnings.last(refused)
        _report(refused)
        _report(replace(refused, lasted_s=61.2))
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        f"Warning: no connection to the cluster at a:1 ({closed}). Something listens there: check security.protocol "
        "and ssl.* in the file that --command-config FILE names, and --bootstrap-server."
    )
    assert second == f"{first} This has lasted for 61 s."


def test_giving_up_says_why_unless_that_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    down, again, unknown = (
        Trouble(UNREACHABLE, "a:1", detail="x"),
        Trouble(UNREACHABLE, "a:1", detail="y"),
        Trouble(UNKNOWN, "a:1", ("t",)),
    )
    with Warnings() as warnings:
        _report(down)
        warnings.last(again)
        _report(down)
    assert len(capsys.readouterr().err.splitlines()) == 1
    with Warnings() as warnings:
        _report(down)
        warnings.last(unknown)
    assert len(capsys.readouterr().err.splitlines()) == 2


def _run(*words: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", "node0:9000"], input=stdin)
    return result.exit_code, result.stderr


@pytest.mark.rule("CT-30")
def test_consume_says_why_nothing_came_and_fails(fake: FakeCluster) -> None:
    status, reported = _run("consume", "--topic", "nope", "--group", "g", "--timeout-ms", "1")
    assert status == 1
    assert reported.startswith("Warning: topic 'nope' does not exist")
    assert "or correct --topic." in reported
    assert "or correct TOPIC." in _run("consume", "nope", "--group", "g", "--timeout-ms", "1")[1]
    assert reported.endswith("Processed a total of 0 messages\n")
    assert _run("consume", "--topic", "t", "--group", "g", "--timeout-ms", "1") == (
        0,
        "Processed a total of 0 messages\n",
    )


@pytest.mark.rule("CM-72")
def test_produce_says_at_once_that_the_topic_is_not_there(fake: FakeCluster) -> None:
    status, reported = _run("produce", "nope", "--property", "max.block.ms=300", stdin="a\n")
    assert status == 1
    assert reported.startswith("Warning: topic 'nope' does not exist")
    assert "or correct TOPIC." in reported, "it has no --topic"
    assert "was not found within 300 ms" in reported


@pytest.mark.rule("CM-72")
def test_a_tool_names_what_to_try_when_the_cluster_is_down(fake: FakeCluster, tmp_path: Path) -> None:
    hurried = tmp_path / "client.properties"
    hurried.write_text("default.api.timeout.ms=500\nbootstrap.servers=unknown:1\n")
    result = CliRunner().invoke(main, ["topics", "list", "--command-config", str(hurried)])
    status, reported = result.exit_code, result.output
    assert status == 1
    assert reported.startswith("Error: Listing topics failed: ")
    assert reported.endswith(f"Is the cluster up (`sharegroups up`), and is bootstrap.servers in {hurried} right?\n")


@pytest.mark.rule("CM-72")
@pytest.mark.parametrize("secured", [True, False])
@pytest.mark.parametrize(
    ("details", "asks"),
    [
        ("failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed", False),
        ("Ssl handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER", False),
        ("ipv4:127.0.0.1:1: Handshake read failed (Socket closed)", False),
        ("ipv4:127.0.0.1:1: Handshake read failed (FD Shutdown (endpoint shutdown))", False),
        ("SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: self signed certificate", False),
        ("failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Connection refused", True),
    ],
)
def test_a_cluster_whose_tls_refuses_is_up(
    capsys: pytest.CaptureFixture[str], details: str, asks: bool, secured: bool
) -> None:
    transport = GrpcTransport(grpc.ssl_channel_credentials if secured else None)
    with pytest.raises(SystemExit), failures("Listing topics"):
        raise RequestTimedOutError(f"Metadata was not answered within 4 s; last: {transport.explained(details)}")
    said = capsys.readouterr().err
    assert ("Is the cluster up" in said) is asks
    advises = "check security.protocol and ssl.* in the file that --command-config FILE names" in said
    assert advises is (not asks and SLOW not in said), "nothing is known to be wrong with the TLS of a slow node"
