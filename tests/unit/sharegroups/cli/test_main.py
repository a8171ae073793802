"""The command line tools against the fake cluster: output, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sharegroups.administration import group_listing
from sharegroups.cli import clients
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups


@pytest.mark.rule("CM-72")
def test_every_tool_has_an_output_for_programs() -> None:
    tools = ["topics", "produce", "consume", "groups", "dlq", "configs", "perf"]
    actions = [action for tool in tools for action in _actions(main.commands[tool], tool)]
    assert {"topics alter", "groups describe", "dlq redrive", "configs alter", "perf consume", "produce"} <= set(
        actions
    )
    for words in actions:
        shown = CliRunner().invoke(main, [*words.split(), "--help"])
        assert shown.exit_code == 0
        assert "--output [text|json]" in shown.stdout, words
    assert "one JSON object a line" in CliRunner().invoke(main, ["verify-consumer", "--help"]).stdout


def _actions(command: click.Command, words: str) -> list[str]:
    """A tool's actions, or the tool itself if it has none."""
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    return [f"{words} {name}" for name, _ in inner] or [words]


@pytest.mark.rule("CM-72")
def test_topics_are_created_listed_and_described(fake: FakeCluster) -> None:
    result = sharegroups("topics", "create", "new", "--partitions", "3")
    assert (result.exit_code, result.output) == (0, "Created topic new.\n")
    result = sharegroups("topics", "create", "new")
    assert result.exit_code == 1
    assert "TOPIC_ALREADY_EXISTS" in result.output
    assert sharegroups("topics", "create", "new", "--if-not-exists").exit_code == 0
    assert sharegroups("topics", "list").output == "new\nt\n"
    described = json.loads(sharegroups("topics", "describe", "new", "--output", "json").output)
    assert [part["partition"] for part in described[0]["partitions"]] == [0, 1, 2]


@pytest.mark.rule("CM-72")
def test_describing_a_topic_that_is_not_there_is_an_error_without_a_table(fake: FakeCluster) -> None:
    result = sharegroups("topics", "describe", "nope")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Error: nope: UNKNOWN_TOPIC_OR_PARTITION" in result.stderr
    both = sharegroups("topics", "describe", "nope", "t")
    assert both.exit_code == 1
    firsts = [line.split()[0] for line in both.stdout.splitlines() if line]
    assert firsts == ["TOPIC", "t", "TOPIC", "t", "t", "STORE", "store"]


@pytest.mark.rule("CM-72", "CT-30", "CT-31")
def test_lines_are_produced_and_consumed_again(fake: FakeCluster) -> None:
    result = sharegroups("produce", "t", "--key-separator", ":", "--partition", "1", stdin="a:1\nb:2\n")
    assert (result.exit_code, result.output) == (0, "")
    result = sharegroups(
        "consume", "--topic", "t", "--max-messages", "2",
        "--formatter-property", "print.key=true", "--formatter-property", "print.delivery=true",
    )  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout == "Delivery:1\ta\t1\nDelivery:1\tb\t2\n"
    assert result.stderr.splitlines()[1:] == ["Processed a total of 2 messages"]
    assert set(fake.states("t", "console-share-consumer", 1).values()) == {"acknowledged"}


@pytest.mark.rule("CT-30")
def test_consume_can_reject_or_release_and_knows_json(fake: FakeCluster) -> None:
    produce(fake, 1)
    result = sharegroups(
        "consume", "--topic", "t", "--group", "g", "--max-messages", "1", "--reject", "--output", "json"
    )
    assert json.loads(result.stdout)["value"] == "v0"
    assert fake.states("t") == {0: "archived"}
    produce(fake, 1, partition=1)
    released = sharegroups(
        "consume", "--topic", "t", "--group", "h", "--max-messages", "1", "--release", "--enable-systest-events"
    )
    assert released.stdout == "v0\nshutdown_complete\n"
    assert "acknowledged" not in {*fake.states("t", "h").values(), *fake.states("t", "h", 1).values()}
    assert "available" in {*fake.states("t", "h").values(), *fake.states("t", "h", 1).values()}
    both = sharegroups("consume", "--topic", "t", "--reject", "--release")
    assert both.exit_code == 1
    assert "can't be used with" in both.output


@pytest.mark.rule("CT-30", "CL-36")
def test_max_messages_leaves_the_other_records_untouched(fake: FakeCluster) -> None:
    produce(fake, 5)
    produce(fake, 4, partition=1)
    for limit in (1, 7):
        result = sharegroups("consume", "t", "--group", "g", "--max-messages", str(limit), "--formatter-property",
                             "print.delivery=true")  # fmt: skip
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) == limit
        assert all(line.startswith("Delivery:1\t") for line in result.stdout.splitlines())
    states = [state for partition in (0, 1) for state in fake.states("t", "g", partition).values()]
    assert states.count("acknowledged") == len(states) == 8
    asked = [request.max_records for request in fake.fetches if request.max_records]
    assert max(asked) <= 7
    assert 1 in asked


@pytest.mark.rule("CT-30")
def test_the_topic_to_consume_is_an_argument_or_an_option(fake: FakeCluster) -> None:
    produce(fake, 1)
    assert sharegroups("consume", "t", "--topic", "t", "--max-messages", "1").stdout == "v0\n"
    two = sharegroups("consume", "t", "--topic", "u")
    assert two.exit_code == 1
    assert "TOPIC is 't' but --topic is 'u'; give one of them" in two.stderr


@pytest.mark.rule("CT-32")
@pytest.mark.parametrize(
    ("flags", "exit_code", "state"), [((), 1, "available"), (("--reject-message-on-error",), 0, "archived")]
)
def test_a_record_that_cannot_be_written_stops_or_is_rejected(
    fake: FakeCluster, flags: tuple[str, ...], exit_code: int, state: str
) -> None:
    produce(fake, 1, value=b"\xff\xfe")
    read = ["--value-deserializer", "StringDeserializer"]
    result = sharegroups("consume", "--topic", "t", "--group", "g", "--timeout-ms", "300", *read, *flags)
    assert result.exit_code == exit_code
    assert fake.states("t") == {0: state}


@pytest.mark.rule("CT-32")
def test_group_ids_that_differ_are_a_usage_error_and_the_client_has_the_tools_name(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[dict[str, object]] = []
    opened = clients.open_client

    def noted(kind: Any, settings: Any) -> Any:
        given.append(dict(settings))
        return opened(kind, settings)

    monkeypatch.setattr(clients, "open_client", noted)
    file = tmp_path / "client.properties"
    file.write_text("group.id=other\n")
    for words in (("--command-config", str(file)), ("--command-property", "group.id=other")):
        result = sharegroups("consume", "t", "--group", "g", "--timeout-ms", "500", *words)
        assert (result.exit_code, result.stdout, given) == (1, "", [])
        assert "--group is 'g' but the settings say group.id=other" in result.stderr
    produce(fake, 1)
    assert sharegroups("consume", "t", "--command-config", str(file), "--max-messages", "1").stdout == "v0\n"
    reported = given[0]
    assert (reported["client.id"], reported["group.id"], reported["share.acknowledgement.mode"]) == (
        "console-share-consumer", "other", "explicit",
    )  # fmt: skip


@pytest.mark.rule("CT-21", "CT-22", "CT-20")
def test_groups_are_listed(fake: FakeCluster) -> None:
    assert sharegroups("groups", "--list").output == "g\n"
    assert (
        sharegroups("groups", "--list", "--state", "empty").output
        == "\nGROUP           STATE\ng               Empty\n\n"
    )
    wrong = sharegroups("groups", "list", "--state", "odd")
    assert wrong.exit_code == 1
    assert "Invalid state list 'odd'. Valid states are: Empty, Stable, Dead" in wrong.output


@pytest.mark.rule("CT-21", "CT-22", "GC-123")
@pytest.mark.parametrize("words", [(), ("--state",), ("--output", "json")])
def test_groups_that_cannot_be_listed_are_reported_beside_those_that_can(
    fake: FakeCluster, words: tuple[str, ...]
) -> None:
    whole = sharegroups("groups", "list", *words)
    fake.unserved = {3: 16, 7: 16}
    result = sharegroups("groups", "list", *words, "--timeout", "300")
    assert (whole.exit_code, whole.stderr, result.exit_code, result.stdout) == (0, "", 1, whole.stdout)
    assert result.stderr == (
        "Error: The list of groups is not complete. No node serves shards 3, 7 of the group log, so their groups are "
        "not listed; the logs of the group coordinators say why they are not loaded, and `sharegroups state "
        "repair` shows what in the store is damaged\n"
    )


@pytest.mark.rule("CT-15", "CT-21", "GC-123")
def test_descriptions_and_configs_of_all_groups_show_which_are_missing(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_listing, "UNOWNED_S", 0.1)
    for words in (
        ("groups", "describe", "--all-groups", "--state"),
        ("configs", "describe", "--entity-type", "groups"),
    ):
        fake.unserved = {}
        whole = sharegroups(*words)
        fake.unserved = {3: 16}
        result = sharegroups(*words)
        assert (whole.exit_code, result.exit_code, result.stdout) == (0, 1, whole.stdout)
        assert "Error: The list of groups is not complete. No node serves shard 3 of the group log" in result.stderr


@pytest.mark.rule("CT-23i", "CL-46")
def test_partitions_whose_offsets_are_not_known_are_reported_and_the_others_shown(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 7, partition=number)
        consumed(fake, "t", number, 3)
    fake.stateless[fake.partition("t", 0)] = "the stored state of g is in quarantine"
    fake.groups["h"] = None
    result = sharegroups("groups", "describe", "--group", "g")
    assert (result.exit_code, result.stdout) == (
        1,
        "\n"
        "GROUP           TOPIC           PARTITION  START-OFFSET  LAG        ARCHIVED\n"
        "g               t               1          3             4          -\n"
        "\n",
    )
    reported = "Error: group 'g', t-0: COORDINATOR_NOT_AVAILABLE: the stored state of g is in quarantine\n"
    assert result.stderr == reported
    shown = sharegroups("groups", "describe", "--group", "g", "--output", "json")
    assert (shown.exit_code, shown.stderr) == (1, reported)
    (group,) = json.loads(shown.stdout)
    assert [one["partition"] for one in group["offsets"]] == [1]
    assert group["errors"] == [
        {
            "topic": "t",
            "partition": 0,
            "error": "COORDINATOR_NOT_AVAILABLE",
            "message": "the stored state of g is in quarantine",
        }
    ]
    fake.stateless[fake.partition("t", 1)] = "the same"
    both = sharegroups("groups", "describe", "--group", "g")
    assert (both.exit_code, both.stdout, both.stderr.count("\n")) == (1, "", 2), "nothing is said to have no offsets"


@pytest.mark.rule("CT-23i")
def test_of_many_partitions_without_offsets_some_are_named_and_the_rest_counted(fake: FakeCluster) -> None:
    fake.add_topic("wide", 9)
    for number in range(9):
        consumed(fake, "wide", number, 1)
        fake.stateless[fake.partition("wide", number)] = "gone"
    reported = sharegroups("groups", "describe", "--group", "g").stderr.splitlines()
    assert [line.split(":")[1] for line in reported[:5]] == [f" group 'g', wide-{number}" for number in range(5)]
    assert reported[5:] == ["Error: group 'g': 4 more partitions; --output json names all of them"]


@pytest.mark.rule("CL-46")
def test_listing_asks_a_loading_coordinator_again(fake: FakeCluster) -> None:
    fake.errors["list_groups"].append(14)
    assert sharegroups("groups", "--list").output == "g\n"


@pytest.mark.rule("CT-23a", "CT-23b", "CT-23i", "CL-46")
def test_offsets_are_described_and_a_loading_coordinator_is_asked_again(fake: FakeCluster) -> None:
    for number in (0, 1):
        produce(fake, 7, partition=number)
        consumed(fake, "t", number, 3)
    fake.errors["describe_offsets"].append(14)
    result = sharegroups("groups", "describe", "--group", "g")
    assert result.exit_code == 0
    assert result.output == (
        "\n"
        "GROUP           TOPIC           PARTITION  START-OFFSET  LAG        ARCHIVED\n"
        "g               t               0          3             4          -\n"
        "g               t               1          3             4          -\n"
        "\n"
    )
    verbose = sharegroups("groups", "describe", "--group", "g", "--offsets", "--verbose").output.splitlines()
    assert verbose[1] == (
        "GROUP           TOPIC           PARTITION  LEADER-EPOCH  START-OFFSET  LAG        IN-FLIGHT  "
        "WAITING    DELAYED    ARCHIVED   DEAD-LETTERS  OLDEST"
    )
    assert verbose[2] == (
        "g               t               0          1             3             4          -          "
        "-          -          -          -             -"
    )


@pytest.mark.rule("CT-23c", "CT-23e", "CT-23f", "CT-23j")
def test_members_and_state_are_described(fake: FakeCluster) -> None:
    empty = sharegroups("groups", "describe", "--group", "g", "--members")
    assert (empty.stdout, empty.stderr) == ("", "Share group 'g' has no active members.\n")
    fake.add_member("m1")
    members = sharegroups("groups", "describe", "--group", "g", "--members").output.splitlines()
    assert members[1].split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    assert members[2].split() == ["g", "m1", "127.0.0.1", "c", "2", "t:0,1"]
    state = sharegroups("groups", "describe", "--group", "g", "--state", "--verbose").output.splitlines()
    assert state[1].split() == ["GROUP", "COORDINATOR", "(ID)", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert state[2].split() == ["g", "node0:9000", "(0)", "Stable", "2", "2", "1"]


@pytest.mark.scenario("S-101")
@pytest.mark.rule("CT-28", "CT-29", "CT-15", "OP-10")
def test_an_unknown_group_and_a_wrong_command_line_exit_with_1(fake: FakeCluster) -> None:
    result = sharegroups("groups", "describe", "--group", "nope")
    assert result.exit_code == 1
    said = "Error: Executing share group command failed due to Group nope not found."
    assert result.stderr == f"{said} All groups: sharegroups groups list\n"
    assert sharegroups("groups", "describe").exit_code == 1
    assert sharegroups("groups", "describe", "--group", "g", "--members", "--state").exit_code == 1


@pytest.mark.rule("CT-29")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("consume",), "Missing option '--topic'"),
        (("topics", "create", "t", "--output", "xml"), "'xml' is not one of 'text', 'json'"),
        (("nonsense",), "No such command 'nonsense'"),
        (("--nonsense",), "No such option '--nonsense'"),
        (("topics",), "Create, change and describe topics."),
        ((), "Queues for Kafka's share groups"),
    ],
)
def test_every_wrong_command_line_exits_with_1(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Error: Usage" not in result.stderr
