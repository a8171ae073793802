"""`sharegroups configs` about quotas of users and client ids: options, output and refusals."""

from __future__ import annotations

import json

import pytest

from kip932.errors import ClusterAuthorizationFailedError
from kip932.quotas import QuotaEntity
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

ALICE, APP = QuotaEntity("alice"), QuotaEntity("alice", "app")


@pytest.mark.rule("CT-139")
def test_the_transcript(fake: FakeCluster) -> None:
    check(
        "configs-quotas",
        [
            "configs alter --user alice --add-config producer_byte_rate=1048576,consumer_byte_rate=2097152",
            "configs alter --client-defaults --add-config controller_mutation_rate=0.5",
            "configs --alter --entity-type users --entity-name alice --entity-type clients --entity-name app"
            " --add-config producer_byte_rate=1000",
            "configs alter --user-defaults --client app --add-config consumer_byte_rate=5 --output json",
            "configs describe --user alice",
            "configs describe --entity-type users",
            "configs describe --entity-type users --entity-type clients --output json",
            "configs describe --user bob",
            "configs alter --user alice --delete-config consumer_byte_rate,controller_mutation_rate",
            "configs describe --client-defaults",
        ],
    )


@pytest.mark.rule("CT-139")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("alter --user User:alice --add-config producer_byte_rate=1", "begins with 'User:'; expected the name alone"),
        ("alter --user alice --add-config producer_byte_rate=1MB", "is not a number; expected one without a unit"),
        ("alter --user alice --add-config producer_bytes=1", "unknown quota 'producer_bytes'; there are"),
        ("alter --user alice --delete-config producer_bytes", "unknown quota 'producer_bytes'; there are"),
        ("alter --user alice --add-config producer_byte_rate=0", "producer_byte_rate=0 is not possible; expected more"),
        ("alter --user alice --user-defaults --add-config producer_byte_rate=1", "a user has a name or is the default"),
        ("alter --entity-type users --add-config producer_byte_rate=1", "say which user; give --user NAME"),
        ("alter --entity-type users --entity-type clients --entity-name a --entity-default"
         " --add-config producer_byte_rate=1", "each --entity-type needs its own --entity-name"),
        ("alter --user alice --topic t --add-config producer_byte_rate=1", "say once whose configs are meant"),
        ("alter --user alice --entity-type clients --add-config producer_byte_rate=1", "say once whose quotas are"),
        ("alter --entity-type topics --entity-type users --add-config a=1", "say once whose quotas are meant"),
        ("alter --client= --add-config producer_byte_rate=1", "Invalid value for '--client': it is empty"),
        ("alter --user alice", "nothing to change; give --add-config"),
    ],
)  # fmt: skip
def test_a_wrong_call_changes_nothing_and_says_what_to_write(fake: FakeCluster, words: str, said: str) -> None:
    fake.quotas[ALICE] = {"consumer_byte_rate": 7}
    result = sharegroups("configs", *words.split())
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split()), result.stderr
    assert fake.quotas == {ALICE: {"consumer_byte_rate": 7}}


@pytest.mark.rule("CT-139")
def test_only_entities_with_exactly_the_named_parts_are_shown(fake: FakeCluster) -> None:
    fake.quotas.update({ALICE: {"consumer_byte_rate": 7}, APP: {"consumer_byte_rate": 8}})
    shown = json.loads(sharegroups("configs", "describe", "--user", "alice", "--output", "json").stdout)
    assert shown == [{"user": "alice", "client_id": None, "quotas": {"consumer_byte_rate": 7}}]
    shown = json.loads(sharegroups("configs", "describe", "--entity-type", "clients", "--output", "json").stdout)
    assert shown == []


@pytest.mark.rule("CT-139")
def test_a_refused_call_is_an_error(fake: FakeCluster) -> None:
    fake.errors["alter_client_quotas"].append(ClusterAuthorizationFailedError.code)
    result = sharegroups("configs", "alter", "--user", "alice", "--add-config", "producer_byte_rate=1")
    assert result.exit_code == 1
    assert "Altering quotas of user-principal 'alice' failed: Not authorised for the cluster" in result.stderr
