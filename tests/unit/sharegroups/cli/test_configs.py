"""`sharegroups configs`: its exact output, its changes, and its refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kip932.api.v1.describe_configs_pb2 import DescribeConfigsResponse
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from sharegroups.cli import reaching
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.configs import Configs
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

LOCK = "share.record.lock.duration.ms"


@pytest.mark.rule("CT-35", "CT-91")
def test_the_transcript(fake: FakeCluster) -> None:
    check(
        "configs",
        [
            "configs --describe --entity-type groups --entity-name workers",
            "configs --alter --entity-type groups --entity-name workers "
            f"--add-config share.auto.offset.reset=earliest,{LOCK}=20000",
            "configs --describe --group workers",
            "configs describe --group workers",
            "configs describe --group workers --all",
            f"configs --alter --group workers --delete-config {LOCK},share.isolation.level",
            "configs describe --group workers --output json",
            "configs describe --group g",
            "configs alter --group g --add-config share.auto.ofset.reset=earliest",
            "configs alter --group g --add-config share.auto.offset.reset=earliest "
            "--delete-config share.isolaton.level",
            "configs describe --entity-type groups",
            "configs alter --topic t --add-config retention.ms=60000",
            "configs describe --entity-type topics",
            "configs alter --topic nope --add-config retention.ms=60000",
            "configs describe --topic nope",
            "configs alter --broker 0 --add-config group.share.assignment.interval.ms=500",
            "configs describe --broker 0",
            "configs alter --broker-defaults --add-config group.share.assignment.interval.ms=700 --output json",
            "configs describe --entity-type brokers --entity-default",
            "configs describe --node 7",
            "configs alter --broker 0 --add-config share.version=0",
        ],
    )
    assert fake.configs[RESOURCE_GROUP, "workers"] == {"share.auto.offset.reset": "earliest"}
    assert (RESOURCE_GROUP, "g") not in fake.configs, "a change with a wrong name changes nothing"


@pytest.mark.rule("CT-35")
def test_kafkas_way_to_write_it_is_the_same_as_ours(fake: FakeCluster) -> None:
    sharegroups("configs", "alter", "--group", "g", "--add-config", f"{LOCK}=20000")
    kafkas = sharegroups("configs", "--entity-type", "groups", "--describe", "--entity-name", "g")
    ours = sharegroups("configs", "describe", "--group", "g")
    assert (kafkas.exit_code, kafkas.stdout) == (0, ours.stdout)
    assert ours.stdout.splitlines() == [
        "Dynamic configs for group g are:",
        f"  {LOCK}=20000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{LOCK}=20000, "
        f"DEFAULT_CONFIG:group.{LOCK}=30000}}",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe",), "say once whose configs are meant; give --group G, --topic T"),
        (("describe", "--group", "g", "--topic", "t"), "say once whose configs are meant"),
        (("describe", "--entity-name", "g"), "--entity-name and --entity-default need --entity-type"),
        (("describe", "--entity-type", "groups", "--entity-default"), "goes with --entity-type brokers"),
        (("--describe", "--alter", "--group", "g"), "exactly one action: --describe, --alter"),
        (("--group", "g"), "exactly one action: --describe, --alter"),
        (("alter", "--entity-type", "groups", "--add-config", "a=b"), "An entity name must be specified with alter"),
        (("alter", "--group", "g"), "nothing to change; give --add-config, --add-config-file or --delete-config"),
        (("alter", "--group", "g", "--add-config", "name"), "'name' is not name=value"),
        (("alter", "--group", "g", "--add-config", "=x"), "'=x' is not name=value"),
        (("alter", "--group", "g", "--delete-config", "name=1"), "'name=1' has a value"),
        (("alter", "--group", "g", "--add-config", "a=1", "--delete-config", "a"), "given more than once: a"),
        (("alter", "--group", ""), "'--group': it is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["configs", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


def test_values_with_commas_stand_in_brackets_and_files_hold_one_a_line(fake: FakeCluster, tmp_path: Any) -> None:
    file = tmp_path / "configs.properties"
    file.write_text(f"# comment\n{LOCK} = 20000\n\nshare.isolation.level=read_committed\n")
    given = ("--add-config-file", str(file), "--add-config", "share.auto.offset.reset=[by_duration:PT1H]")
    assert sharegroups("configs", "alter", "--group", "g", *given).exit_code == 0
    assert fake.configs[RESOURCE_GROUP, "g"] == {
        LOCK: "20000",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "by_duration:PT1H",
    }
    both = sharegroups("configs", "alter", "--group", "g", "--add-config", "errors.deadletterqueue.topic.name=[a,b]")
    assert both.exit_code == 1
    assert "a,b" in both.stderr


@pytest.mark.rule("CT-92")
def test_a_sensitive_value_is_shown_nowhere(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe(self: Configs, request: Any, context: Any) -> DescribeConfigsResponse:
        response = DescribeConfigsResponse()
        result = response.results.add(resource_type=RESOURCE_BROKER, resource_name="0")
        config = result.configs.add(name="password", value="SECRET", config_source=2, is_sensitive=True)
        config.synonyms.add(name="password", value="SECRET", source=2)
        return response

    monkeypatch.setattr(Configs, "describe_configs", describe)
    fake.serve(0)
    text = sharegroups("configs", "describe", "--broker", "0")
    assert text.stdout.splitlines()[1:] == [
        "  password=(hidden) sensitive=true synonyms={DYNAMIC_BROKER_CONFIG:password=(hidden)}"
    ]
    reported = sharegroups("configs", "describe", "--broker", "0", "--output", "json").stdout
    (config,) = json.loads(reported)[0]["configs"]
    assert (config["value"], config["sensitive"], config["synonyms"][0]["value"]) == (None, True, None)
    assert "SECRET" not in reported


@pytest.mark.rule("CT-82")
def test_values_of_others_are_escaped(fake: FakeCluster) -> None:
    fake.configs[RESOURCE_TOPIC, "t"] = {"retention.ms": "\x1b[2J"}
    text = sharegroups("configs", "describe", "--topic", "t").stdout
    assert r"retention.ms=\x1b[2J" in text
    assert "\x1b" not in text


@pytest.mark.rule("CT-90")
@pytest.mark.parametrize(
    "words",
    [
        ("configs", "describe", "--group", "g"),
        ("configs", "alter", "--group", "g", "--delete-config", LOCK),
        ("topics", "alter", "t", "--partitions", "3"),
        ("topics", "delete-records", "t:0=1"),
        ("topics", "create", "new"),
        ("topics", "delete", "t"),
        ("topics", "list"),
        ("topics", "describe"),
        ("features",),
    ],
)
def test_a_cluster_that_is_not_there_is_reported_within_seconds(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert reaching.REACH_MS < 5_000
    monkeypatch.setattr(reaching, "REACH_MS", 100)
    fake.network.stop("node0:9000")
    result = sharegroups(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "failed: Metadata was not answered within 0.1 s" in result.stderr
    assert "Is the cluster up (`sharegroups up`), and is --bootstrap-server right?" in result.stderr


@pytest.mark.rule("CT-91")
def test_a_dead_letter_topic_that_is_not_there_is_reported_with_what_creates_it(fake: FakeCluster) -> None:
    def said(topic: str) -> str:
        name = "errors.deadletterqueue.topic.name"
        result = sharegroups("configs", "alter", "--group", "g", "--add-config", f"{name}={topic}")
        assert result.exit_code == 0
        return result.stderr

    assert (
        "Note: topic 'dlq.g' does not exist; until it does, dead letters of group 'g' wait. Create it: sharegroups "
        "topics create dlq.g --config errors.deadletterqueue.group.enable=true\n"
    ) in said("dlq.g")
    fake.add_topic("dlq.g", 1)
    fake.configs[RESOURCE_TOPIC, "dlq.g"] = {"errors.deadletterqueue.group.enable": "true"}
    assert "Create it" not in said("dlq.g")
    assert "Create it" not in said("")
    fake.configs[RESOURCE_BROKER, ""] = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
    assert "Create it" not in said("dlq.of-all")
