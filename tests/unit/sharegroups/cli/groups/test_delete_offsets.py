"""`sharegroups groups delete-offsets`: the offsets deleted, and the message when there are none."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kip932.errors import InQuarantineError
from sharegroups.admin import Admin
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check


@pytest.mark.scenario("S-102")
@pytest.mark.rule("CT-17", "CT-23h", "CT-27", "CT-29")
def test_the_transcript(fake: FakeCluster) -> None:
    for name in ("orders", "invoices"):
        fake.add_topic(name)
    for name in ("t", "orders", "invoices"):
        produce(fake, 3, name)
        consumed(fake, name, 0, 2)
    fake.add_member("m1", "busy")
    check(
        "groups-delete-offsets",
        [
            "groups delete-offsets --group g --topic t --topic orders",
            "groups delete-offsets --group g --topic t --topic invoices --topic order",
            "groups delete-offsets --group g --topic t --output json",
            "groups delete-offsets --group gg --topic t --topic orders",
            "groups delete-offsets --group busy --topic t",
            "groups delete-offsets --group busy --topic t --output json",
            "groups delete-offsets --group g --group busy --topic t",
            "groups delete-offsets --group g",
            "groups delete-offsets --topic t",
            "groups delete-offsets --group g --topic t:0",
        ],
    )


@pytest.mark.rule("CT-27")
def test_an_unknown_failure_of_the_call_says_that_the_topics_may_be_forgotten(fake: FakeCluster) -> None:
    fake.errors["delete_offsets"].append(-1)
    result = sharegroups("groups", "delete-offsets", "--group", "g", "--topic", "t")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Encounter some unknown error: UNKNOWN_SERVER_ERROR")
    assert ". The group may have forgotten" in result.stderr
    assert result.stdout.splitlines()[2].startswith("t               Error: Encounter some unknown error")


@pytest.mark.rule("CT-27", "GC-158")
def test_of_a_group_in_quarantine_nothing_is_forgotten(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise InQuarantineError("what is stored of group g is in quarantine")

    monkeypatch.setattr(Admin, "delete_share_group_offsets", refuse)
    result = sharegroups("groups", "delete-offsets", "--group", "g", "--topic", "t")
    assert (result.exit_code, result.stderr) == (1, "Error: what is stored of group g is in quarantine\n")


@pytest.mark.rule("CT-17")
@pytest.mark.parametrize("words", [(), ("--group", "g"), ("--topic", "t")])
def test_group_and_topic_are_needed(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["groups", "delete-offsets", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "takes the following options: [group], [topic]" in result.stderr
