"""The exact output of `groups describe`, with an admin client whose results the test sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

import pytest

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import TopicPartition
from sharegroups.admin_values import (
    GroupListing,
    GroupOffsets,
    ListGroupsResult,
    MemberDescription,
    Node,
    ShareGroupDescription,
    ShareGroupOffset,
)
from sharegroups.cli import clients
from sharegroups.insight.figures import age
from tests.unit.sharegroups.cli.conftest import sharegroups

NODE = Node(3, "host", 9000)
LONG = "a-group-with-a-long-name"


def member(member_id: str, **assignment: tuple[int, ...]) -> MemberDescription:
    return MemberDescription(member_id, f"client of {member_id}", "/10.0.0.7", None, 5, ("t",), assignment)


def group(name: str, *members: MemberDescription, coordinator: Node | None = NODE) -> ShareGroupDescription:
    return ShareGroupDescription(name, "Stable" if members else "Empty", 7, 6, "simple", tuple(members), coordinator)


class StubAdmin:
    """Returns values from `groups` and `offsets`; other groups are not found."""

    backlog: bool | None = None
    groups: Mapping[str, ShareGroupDescription]
    offsets: Mapping[str, dict[TopicPartition, ShareGroupOffset | None]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_topics(self, names: Iterable[str]) -> dict[str, object]:
        return {}

    def list_groups(self, states: Iterable[str] | None, types: Iterable[str]) -> ListGroupsResult:
        wanted = None if states is None else set(states)
        found = [GroupListing(name, each.state, "share") for name, each in sorted(self.groups.items())]
        return ListGroupsResult(each for each in found if wanted is None or each.state in wanted)

    def describe_share_groups(self, names: Iterable[str]) -> dict[str, ShareGroupDescription | KafkaError]:
        return {name: self.groups.get(name) or GroupIdNotFoundError() for name in names}

    def describe_configs(self, resources: Iterable[object]) -> dict[object, dict[str, object]]:
        return {resource: {} for resource in resources}

    def list_share_group_offsets(self, names: Iterable[str], backlog: bool) -> dict[str, Any]:
        self.backlog = backlog
        return {name: GroupOffsets(self.offsets.get(name)) for name in names}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> StubAdmin:
    made = StubAdmin()
    made.groups, made.offsets = {}, {}
    monkeypatch.setattr(clients, "open_client", lambda kind, settings: made)
    return made


def described(*words: str) -> list[str]:
    result = sharegroups("groups", "describe", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


@pytest.mark.rule("CT-21", "CT-22")
def test_kafkas_list_has_the_names_alone_or_with_their_states(admin: StubAdmin) -> None:
    admin.groups = {"b": group("b", member("m")), "a": group("a")}
    assert sharegroups("groups", "--list", "--state").stdout.splitlines() == [
        "",
        "GROUP           STATE",
        "a               Empty",
        "b               Stable",
        "",
    ]
    assert sharegroups("groups", "--list", "--state", "STABLE, empty").stdout.count("\n") == 5
    assert sharegroups("groups", "--list").stdout == "a\nb\n"


@pytest.mark.scenario("S-100")
@pytest.mark.rule("CT-23c", "CT-23d", "CT-23i")
def test_members_are_shown_with_what_is_assigned_to_them(admin: StubAdmin) -> None:
    admin.groups = {"g": group("g", member("m1", u=(3, 1), t=(2, 10)), member("m2"))}
    assert described("--group", "g", "--members") == [
        "",
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS  ASSIGNMENT",
        "g               m1              /10.0.0.7       client of m1    4            t:2,10;u:1,3",
        "g               m2              /10.0.0.7       client of m2    0            -",
        "",
    ]
    assert described("--group", "g", "--members", "--verbose")[1:3] == [
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS  MEMBER-EPOCH  ASSIGNMENT",
        "g               m1              /10.0.0.7       client of m1    4            5             t:2,10;u:1,3",
    ]


@pytest.mark.scenario("S-100")
@pytest.mark.rule("CT-23e", "CT-23f", "CT-23i")
def test_the_state_is_shown_with_the_coordinator(admin: StubAdmin) -> None:
    admin.groups = {"g": group("g", member("m"))}
    assert described("--group", "g", "--state") == [
        "",
        "GROUP           COORDINATOR (ID)          STATE           #MEMBERS",
        "g               host:9000  (3)            Stable          1",
        "",
    ]
    assert described("--group", "g", "--state", "--verbose")[1:3] == [
        "GROUP           COORDINATOR (ID)          STATE           GROUP-EPOCH  ASSIGNMENT-EPOCH  #MEMBERS",
        "g               host:9000  (3)            Stable          7            6                 1",
    ]


@pytest.mark.scenario("S-100")
@pytest.mark.rule("CT-23j")
def test_an_empty_group_has_no_table_of_members_but_its_row_of_states(admin: StubAdmin) -> None:
    admin.groups = {"g": group("g")}
    reported = "Share group 'g' has no active members.\n"
    members = sharegroups("groups", "describe", "--group", "g", "--members")
    assert (members.exit_code, members.stdout, members.stderr) == (0, "", reported)
    state = sharegroups("groups", "describe", "--group", "g", "--state")
    assert (state.exit_code, state.stderr) == (0, reported)
    assert state.stdout.splitlines()[2] == "g               host:9000  (3)            Empty           0"


@pytest.mark.scenario("S-086")
@pytest.mark.rule("CT-23i", "CT-23a", "CT-23b", "PL-938")
def test_groups_offsets_and_what_is_missing(admin: StubAdmin) -> None:
    admin.groups = {name: group(name) for name in ("none", LONG)}
    admin.offsets = {
        LONG: {
            TopicPartition("u", 0): ShareGroupOffset(5, 9, 4, 1, 2, 0, 4, 61_500, delayed=3),
            TopicPartition("t", 10): None,
            TopicPartition("t", 2): ShareGroupOffset(7, None, None),
        }
    }
    assert described("--group", "none", "--group", LONG) == [
        "",
        "GROUP                    TOPIC           PARTITION  START-OFFSET  LAG        ARCHIVED",
        f"{LONG} t               2          7             -          -",
        f"{LONG} t               10         -             -          -",
        f"{LONG} u               0          5             4          3",
        "",
        "",
        "Share group 'none' has no offset information.",
    ]
    assert admin.backlog is False, "the leaders are asked with --verbose only"
    assert described("--all-groups", "--verbose")[:5] == [
        "",
        "GROUP                    TOPIC           PARTITION  LEADER-EPOCH  START-OFFSET  LAG        IN-FLIGHT  "
        "WAITING    DELAYED    ARCHIVED   DEAD-LETTERS  OLDEST",
        f"{LONG} t               2          -             7             -          -          -          -          "
        "-          -             -",
        f"{LONG} t               10         -             -             -          -          -          -          "
        "-          -             -",
        f"{LONG} u               0          9             5             4          0          4          3          "
        "3          -             1 min 1 s",
    ]
    assert admin.backlog is True
    (shown, _) = json.loads(sharegroups("groups", "describe", "--all-groups", "--output", "json", "--verbose").stdout)
    names = ("in_flight", "waiting", "delayed", "oldest_age_ms")
    assert [tuple(one[name] for name in names) for one in shown["offsets"]] == [
        (None, None, None, None),
        (None, None, None, None),
        (0, 4, 3, 61_500),
    ]


@pytest.mark.rule("CT-23b")
@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (None, None),
        (0, "0.0 s"),
        (59_949, "59.9 s"),
        (60_000, "1 min 0 s"),
        (3_599_999, "59 min 59 s"),
        (3_660_000, "1 h 1 min"),
        (86_400_000 * 3 + 3_600_000 * 4, "3 d 4 h"),
    ],
)
def test_an_age_has_its_two_largest_units(duration_ms: int | None, text: str | None) -> None:
    assert age(duration_ms) == text


@pytest.mark.rule("CT-15")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "takes one of these options: [group], [all-groups]"),
        (("--group", "g", "--all-groups"), "takes one of these options: [group], [all-groups]"),
        (("--group", "g", "--members", "--state"), "takes at most one of these options: [offsets], [members], [state]"),
        (("--group", "g", "--offsets", "--state"), "takes at most one of these options: [offsets], [members], [state]"),
    ],
)
def test_what_is_to_be_described_is_said_once(admin: StubAdmin, words: tuple[str, ...], said: str) -> None:
    result = sharegroups("groups", "describe", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert "Usage:" in result.stderr
