"""`sharegroups verify-consumer` on the fake cluster: its events, and that it stops exactly at the given number."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kip932.ids import RESOURCE_GROUP
from sharegroups.cli import reaching
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

TIME = (r'"timestamp":\d{13}', '"timestamp":TIME')


def events(*words: str, topic: str = "one") -> list[dict[str, Any]]:
    result = sharegroups("verify-consumer", "--topic", topic, "--group-id", "g", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(autouse=True)
def one_partition(fake: FakeCluster) -> None:
    """Topic `one`, whose single partition keeps records in order."""
    fake.add_topic("one", 1)


@pytest.mark.rule("CT-36", "CT-37")
def test_the_transcript(fake: FakeCluster) -> None:
    produce(fake, 6, "one")
    produce(fake, 6, "one")
    verify = "verify-consumer --topic one --group-id"
    check(
        "verify-consumer",
        [
            f"{verify} g --max-messages 4 --offset-reset-strategy earliest",
            f"{verify} g --max-messages 2 --acknowledgement-mode async --verbose",
            f"{verify} g --max-messages 3 --acknowledgement-mode SYNC --ack-pattern accept,renew,reject --verbose",
            f"{verify} g --max-messages 0",
            f"{verify} g --max-messages 1 --ack-pattern accept",
            f"{verify} g --max-messages 1 --acknowledgement-mode sync --ack-pattern renew,renew",
            f"{verify} g --max-messages 1 --acknowledgement-mode sync --ack-pattern accept,drop",
            "verify-consumer --topic one",
        ],
        [TIME],
    )
    assert fake.configs[RESOURCE_GROUP, "g"] == {"share.auto.offset.reset": "earliest"}


@pytest.mark.rule("CT-95")
@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_it_stops_exactly_there_and_has_acknowledged_what_it_took(fake: FakeCluster, mode: str) -> None:
    for number in (0, 1):
        produce(fake, 30, partition=number)
    reported = events("--max-messages", "41", "--acknowledgement-mode", mode, topic="t")
    counts: Counter[str] = Counter()
    for event in reported:
        counts[event["name"]] += event.get("count", 1)
    assert counts == {"startup_complete": 1, "records_consumed": 41, "offsets_acknowledged": 41, "shutdown_complete": 1}
    assert (reported[0]["name"], reported[-1]["name"]) == ("startup_complete", "shutdown_complete")
    states = Counter(state for number in (0, 1) for state in fake.states("t", "g", number).values())
    assert states == {"acknowledged": 41}, "no other record was touched"


@pytest.mark.rule("CT-95")
def test_released_records_count_and_come_again(fake: FakeCluster) -> None:
    produce(fake, 2, "one")
    reported = events("--max-messages", "4", "--acknowledgement-mode", "sync", "--ack-pattern", "release")
    taken = [event["partitions"][0]["offsets"] for event in reported if event["name"] == "records_consumed"]
    assert sum(map(len, taken)) == 4
    assert fake.states("one") == {0: "available", 1: "available"}


@pytest.mark.rule("CT-37")
def test_a_refused_acknowledgement_is_reported_and_another_record_taken(fake: FakeCluster) -> None:
    produce(fake, 4, "one")
    fake.errors["acknowledge"].append(121)
    reported = events("--max-messages", "2", "--acknowledgement-mode", "sync")
    answers = [event for event in reported if event["name"] == "offsets_acknowledged"]
    assert answers[0]["success"] is False
    assert answers[0]["error"].startswith("INVALID_RECORD_STATE")
    assert sum(answer["count"] for answer in answers if answer["success"]) == 2


@pytest.mark.rule("CT-36")
def test_settings_come_from_a_file_too(fake: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.it=verifier\n")
    given = ("--topic", "one", "--group-id", "g", "--command-config", str(file))
    result = sharegroups("verify-consumer", *given)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "unknown setting 'client.it'. Did you mean 'client.id'?" in result.stderr


@pytest.mark.rule("CT-95")
def test_a_failure_ends_with_1_after_the_last_event(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_MS", 100)
    fake.network.stop("node0:9000")
    given = ("--topic", "one", "--group-id", "g", "--offset-reset-strategy", "latest")
    result = sharegroups("verify-consumer", *given)
    assert result.exit_code == 1
    names = [json.loads(line)["name"] for line in result.stdout.splitlines()]
    assert names == ["startup_complete", "shutdown_complete"]
    assert result.stderr.startswith("Error: Verifying failed: Metadata was not answered")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group-id", "g"), "Missing option '--topic'"),
        (("--topic", "t"), "Missing option '--group-id'"),
        (("--topic", "t", "--group-id", ""), "it is empty"),
        (("--topic", "t", "--group-id", "g", "--max-messages", "-2"), "-2 is not in the range x>=-1"),
        (("--topic", "t", "--group-id", "g", "--acknowledgement-mode", "bogus"), "'bogus' is not one of"),
        (("--topic", "t", "--group-id", "g", "--offset-reset-strategy", "bogus"), "'bogus' is not one of"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["verify-consumer", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
