"""What entries mean: the rows of kafka-answers/access.md, "Deny, patterns, wildcards" and "Which rule implies which",
through the RPCs of a group (GC-148, GC-128)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from kip932.acls import REFUSED_LATELY, Acl, Operation, PatternType, ResourceType
from shard_runtime.rpc.access import RECENT_S
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.ask import first_error
from tests.scenarios.access.asks_cluster import new
from tests.scenarios.access.members import Member, parts, top
from tests.scenarios.access.stage import (
    ADMIN,
    GROUP,
    NODE,
    TOPIC,
    Caller,
    Stage,
    acl,
    denial,
    error_name,
    on_stage,
    play,
    reading,
)

USER, HOST = "User:u", "here"
G, T, C = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER
READ, DESCRIBE, ALL = Operation.READ, Operation.DESCRIBE, Operation.ALL
BASE: Final = reading(USER)
T_READ: Final = BASE[1]
UNSET: Final = -(1 << 31)


def group(
    operation: Operation, name: str = GROUP, pattern: PatternType = PatternType.LITERAL, **more: Any
) -> tuple[Acl, ...]:
    """Return an entry about groups, and READ on the topic."""
    return acl(more.pop("principal", USER), operation, G, name, pattern=pattern, **more), T_READ


#: Entries, and what heartbeat, fetch and describe show: "-" for NONE.
ROWS: Final[dict[str, tuple[tuple[Acl, ...], str]]] = {
    "base": (BASE, "- - -"),
    "a prefix": (group(READ, "group-", PatternType.PREFIXED), "- - -"),
    "the whole name as prefix": (group(READ, GROUP, PatternType.PREFIXED), "- - -"),
    "the wildcard": (group(READ, "*"), "- - -"),
    "everyone": (group(READ, principal="User:*"), "- - -"),
    "this host": (group(READ, host=HOST), "- - -"),
    "a prefix * is no wildcard": (group(READ, "*", PatternType.PREFIXED), "GAF GAF GAF"),
    "a literal that is only a prefix": (group(READ, "group-"), "GAF GAF GAF"),
    "another host": (group(READ, host="elsewhere"), "GAF GAF GAF"),
    "another principal": (group(READ, principal="User:v"), "GAF GAF GAF"),
    "denied READ": ((*BASE, denial(USER, READ, G)), "GAF GAF -"),
    "denied READ by wildcard": ((*BASE, denial(USER, READ, G, "*")), "GAF GAF -"),
    "denied READ by prefix": (
        (*BASE, denial(USER, READ, G, "g")._replace(resource_pattern_type=PatternType.PREFIXED)),
        "GAF GAF -",
    ),
    "denied READ to everyone": ((*BASE, denial("User:*", READ, G)), "GAF GAF -"),
    "denied READ on this host": ((*BASE, denial(USER, READ, G)._replace(host=HOST)), "GAF GAF -"),
    "denied READ on another host": ((*BASE, denial(USER, READ, G)._replace(host="elsewhere")), "- - -"),
    "ALL on the wildcard, denied READ": ((*group(ALL, "*"), denial(USER, READ, G)), "GAF GAF -"),
    "denied DESCRIBE on the group": ((*BASE, denial(USER, DESCRIBE, G)), "- - GAF"),
    "denied ALL on the group": ((*BASE, denial(USER, ALL, G)), "GAF GAF GAF"),
    "denied DESCRIBE on the topic": ((*BASE, denial(USER, DESCRIBE, T)), "TAF - -"),
    "denied READ on the topic": ((*BASE, denial(USER, READ, T)), "- TAF -"),
    "denied WRITE on the topic": ((*BASE, denial(USER, Operation.WRITE, T)), "- - -"),
    "the topic may be described only": ((BASE[0], acl(USER, DESCRIBE, T)), "- TAF -"),
    "everything on the cluster": ((acl(USER, ALL, C), T_READ), "GAF GAF GAF"),
    "DELETE on the group describes it": ((acl(USER, Operation.DELETE, G), T_READ), "GAF GAF -"),
    "ALTER_CONFIGS on the group describes its configs only": (
        (acl(USER, Operation.ALTER_CONFIGS, G), T_READ),
        "GAF GAF GAF",
    ),
    "WRITE on the topic describes it": ((BASE[0], acl(USER, Operation.WRITE, T)), "- TAF -"),
    "CREATE on the topic describes nothing": ((BASE[0], acl(USER, Operation.CREATE, T)), "TAF TAF -"),
    "DESCRIBE_CONFIGS on the topic describes nothing": (
        (BASE[0], acl(USER, Operation.DESCRIBE_CONFIGS, T)),
        "TAF TAF -",
    ),
}


def _shown(name: str) -> str:
    return "-" if name == "NONE" else name


async def three(stage: Stage, caller: Caller) -> str:
    """Describe the empty group, join it, and fetch; return the three results in the order of the table."""
    describing = METHODS["ShareGroupDescribe"].request_type(group_ids=[GROUP])
    described = first_error(await caller.call("ShareGroupDescribe", describing)).what
    member = Member(stage, caller.principal, "m")
    member.caller = member.wire = caller
    beaten = top(await member.beat([TOPIC]))
    answer = await member.fetch(wait_ms=0)
    fetched = top(answer) if answer.error_code else (parts(answer) or ["NONE"])[0]
    return " ".join(map(_shown, (beaten, fetched, described)))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.rule("GC-148")
def test_entries_mean_what_they_mean_in_kafka(row: str) -> None:
    entries, expected = ROWS[row]

    async def story(stage: Stage) -> None:
        await stage.allow(*entries)
        assert await three(stage, stage.caller(USER, HOST)) == expected

    play(story)


@pytest.mark.rule("CM-61", "GC-148")
@on_stage()
async def test_no_entry_affects_a_super_user(stage: Stage) -> None:
    await stage.allow(*(denial(ADMIN, ALL, resource, "*") for resource in (G, T)), denial(ADMIN, ALL, C))
    assert await three(stage, stage.caller(ADMIN)) == "- - -"


@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_caller_without_a_certificate_is_anonymous(stage: Stage) -> None:
    await stage.allow(*reading("User:ANONYMOUS"))
    assert await three(stage, stage.caller(None)) == "- - -"


@pytest.mark.rule("GC-148", "GC-122")
@on_stage()
async def test_who_may_describe_the_cluster_lists_all_groups_even_those_denied(stage: Stage) -> None:
    await stage.allow(acl(USER, DESCRIBE, C), denial(USER, DESCRIBE, G))
    listed = await stage.caller(USER).call("ListGroups", METHODS["ListGroups"].request_type())
    assert [each.group_id for each in listed.groups] == [GROUP]


@pytest.mark.rule("GC-148")
@on_stage()
async def test_write_on_any_topic_is_enough_for_a_producer_id_unless_it_is_denied_for_all_of_them(stage: Stage) -> None:
    write = Operation.WRITE
    prefixed = acl(USER, write, T, "top", pattern=PatternType.PREFIXED)
    for entries, expected in (
        ([acl(USER, write, T, "anything")], "NONE"),
        ([prefixed], "NONE"),
        ([prefixed, denial(USER, write, T)], "NONE"),
        ([acl(USER, write, T, "*"), denial(USER, write, T, "top")], "NONE"),
        ([prefixed, denial(USER, write, T, "*")], "CAF"),
        ([acl(USER, write, T, TOPIC), denial(USER, write, T)], "CAF"),
        ([acl(USER, write, T), denial(USER, ALL, T, "t")._replace(resource_pattern_type=4)], "CAF"),
        ([acl(USER, write, T)._replace(host="elsewhere")], "CAF"),
        ([acl(USER, READ, T, "*")], "CAF"),
        ([acl(USER, Operation.IDEMPOTENT_WRITE, C), denial(USER, write, T, "*")], "NONE"),
    ):
        await stage.allow(*entries)
        request = METHODS["InitProducerId"].request_type(producer_id=-1, producer_epoch=-1)
        assert top(await stage.caller(USER).call("InitProducerId", request)) == expected, entries


@pytest.mark.rule("GC-128")
@on_stage()
async def test_authorized_operations_are_those_that_the_caller_may_do(stage: Stage) -> None:
    caller = stage.caller(USER)
    for entries, expected in (
        ([acl(USER, READ, G)], 264),
        ([acl(USER, DESCRIBE, G)], 256),
        ([acl(USER, Operation.DELETE, G)], 320),
        ([acl(USER, ALL, G)], 3400),
        ([acl(USER, READ, G), denial(USER, READ, G)], 256),
        ([acl(USER, ALL, G), denial(USER, ALL, G)], UNSET),
    ):
        await stage.allow(*entries)
        for asked in (True, False):
            request = METHODS["ShareGroupDescribe"].request_type(group_ids=[GROUP], include_authorized_operations=asked)
            (found,) = (await caller.call("ShareGroupDescribe", request)).groups
            assert found.authorized_operations == (expected if asked else UNSET), entries
    request = METHODS["ShareGroupDescribe"].request_type(group_ids=[GROUP], include_authorized_operations=True)
    assert (await stage.admin.call("ShareGroupDescribe", request)).groups[0].authorized_operations == 3400


@pytest.mark.rule("GC-127", "OP-22")
@on_stage()
async def test_a_topic_that_a_member_names_hides_the_whole_group_until_no_member_names_it(stage: Stage) -> None:
    """This includes a topic that does not exist: the members in the response would name it."""
    await stage.allow(*reading(USER))
    member = Member(stage, ADMIN, "m")
    assert top(await member.beat([TOPIC, "topic-unknown"])) == "NONE"
    request = METHODS["ShareGroupDescribe"].request_type(group_ids=[GROUP])
    (hidden,) = (await stage.caller(USER).call("ShareGroupDescribe", request)).groups
    assert (error_name(hidden.error_code), hidden.error_message) == (
        "TAF",
        "The group has described topic(s) that the client is not authorized to describe.",
    )
    assert (hidden.group_state, len(hidden.members), hidden.group_epoch) == ("", 0, 0)
    assert top(await member.beat([TOPIC])) == "NONE"
    (shown,) = (await stage.caller(USER).call("ShareGroupDescribe", request)).groups
    assert (error_name(shown.error_code), len(shown.members)) == ("NONE", 1)
    await stage.allow(acl(USER, READ, G))
    (hidden,) = (await stage.caller(USER).call("ShareGroupDescribe", request)).groups
    assert error_name(hidden.error_code) == "TAF"
    assert top(await member.leave()) == "NONE"
    (shown,) = (await stage.caller(USER).call("ShareGroupDescribe", request)).groups
    assert (error_name(shown.error_code), shown.group_state) == ("NONE", "Empty")


@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_refusal_names_principal_operation_and_resource_and_how_to_allow_it(stage: Stage) -> None:
    member = Member(stage, USER, "m")
    answer = await member.fetch(wait_ms=0)
    assert answer.error_message == (
        "User:u may not READ GROUP 'group-g'. An administrator can allow it: sharegroups acls add --allow-principal "
        "User:u --operation READ --group group-g --command-config FILE"
    )
    await stage.allow(acl(USER, READ, G), denial(USER, READ, T))
    (part,) = (await member.fetch(wait_ms=0)).responses[0].partitions
    assert TOPIC not in part.error_message, "the request has only its id, and the caller may not describe it"
    assert "An entry denies it" in part.error_message
    assert part.error_message.endswith("explain --principal User:u --operation READ --topic NAME --command-config FILE")
    await stage.change([acl(USER, DESCRIBE, T)])
    (part,) = (await member.fetch(wait_ms=0)).responses[0].partitions
    assert part.error_message.startswith("User:u may not READ TOPIC 'topic-t'. An entry denies it")


@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_change_holds_for_the_next_request_and_each_message_of_an_open_stream(stage: Stage) -> None:
    await stage.allow(*reading(USER))
    caller = stage.caller(USER)
    stream = await caller.transport.open_stream(caller.bootstrap, METHODS["ShareStream"])
    shown = []
    for number, entries in enumerate((reading(USER), (), reading(USER))):
        await stage.allow(*entries)
        request = METHODS["ShareStream"].request_type(correlation_id=number)
        request.fetch.group_id, request.fetch.member_id = GROUP, f"m{number}"
        request.fetch.max_bytes, request.fetch.max_records, request.fetch.batch_size = 1 << 20, 1, 1
        request.fetch.topics.add(topic_id=stage.topic_id).partitions.add(partition_index=0)
        await stream.write(request)
        answer = await stream.read()
        assert answer is not None
        shown.append(top(answer.fetch))
    await stream.close()
    assert shown == ["NONE", "GAF", "NONE"]


@pytest.mark.rule("CM-61")
def test_another_node_decides_by_a_change_as_soon_as_it_has_read_it() -> None:
    async def story(stage: Stage) -> None:
        caller = stage.caller(USER)

        async def sees(address: str) -> bool:
            answer = await caller.call("Metadata", METHODS["Metadata"].request_type(), address)
            return bool(answer.topics)

        for entries in ((acl(USER, DESCRIBE, T),), ()):
            await stage.allow(*entries)
            assert await sees(f"{NODE}:9000") is bool(entries)
            image = stage.world.processes[NODE].node.metadata.image
            while stage.world.processes["b"].node.metadata.image.version < image.version:
                await stage.world.processes["b"].node.metadata.load()
            assert await sees("b:9000") is bool(entries)

    play(story, nodes=2)


@pytest.mark.parametrize(
    ("supers", "entries", "warned"),
    [
        ("", (), True),
        (ADMIN, (), False),
        ("", (acl(USER, Operation.ALTER, C),), False),
        ("", (acl(USER, ALL, C),), False),
        ("", (denial(USER, ALL, C), acl(USER, READ, G)), True),
    ],
    ids=["none", "a super user", "who may ALTER", "who may do ALL", "a denial and another permission"],
)
@pytest.mark.rule("CM-61")
def test_a_node_that_starts_without_an_administrator_warns(supers: str, entries: tuple[Acl, ...], warned: bool) -> None:
    lines: list[str] = []

    async def story(stage: Stage) -> None:
        await stage.change(entries)
        lines.clear()
        await stage.world.stop(NODE)
        await stage.world.start(NODE)
        assert any("access_control_without_administrator" in line for line in lines) is warned

    play(story, flags={"super_users": supers}, lines=lines, set_up=False)


@pytest.mark.parametrize("entries", [(), (acl(USER, READ, G),)])
@pytest.mark.rule("CM-61")
def test_a_node_that_starts_with_entries_and_without_access_control_warns(entries: tuple[Acl, ...]) -> None:
    lines: list[str] = []

    async def story(stage: Stage) -> None:
        await stage.change(entries)
        lines.clear()
        await stage.world.stop(NODE)
        await stage.world.start(NODE)
        assert any("access_control_off" in line for line in lines) is bool(entries)

    play(story, flags={"access_control_enable": "false"}, lines=lines, set_up=False)


@pytest.mark.rule("GC-148")
@on_stage(access_control_enable="false")
async def test_without_access_control_every_caller_may_do_everything(stage: Stage) -> None:
    await stage.allow(denial("User:*", ALL, G, "*"), denial("User:*", ALL, T, "*"))
    assert await three(stage, stage.caller(USER)) == "- - -"
    assert await three(stage, stage.caller(None)) == "UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID -"


@pytest.mark.rule("PL-823", "GC-127")
@on_stage()
async def test_an_explanation_names_consumers_that_were_refused_lately_and_still_would_be(stage: Stage) -> None:
    async def explained() -> str:
        asked = new("ExplainRecord", group_id=GROUP, topic_id=stage.topic_id, partition_index=0, offset=0)
        return " ".join(one.explanation for one in (await stage.admin.call("ExplainRecord", asked)).records)

    async def described(group: str) -> str:
        asked = new("ShareGroupDescribe", group_ids=[group])
        return str((await stage.admin.call("ShareGroupDescribe", asked)).groups[0].error_message)

    await stage.admin.produce(stage.topic_id, 1)
    assert REFUSED_LATELY not in await explained()
    await Member(stage, USER, "m").beat([TOPIC])
    assert f"{REFUSED_LATELY}User:u may not READ GROUP 'group-g'. An administrator can allow it: " in await explained()
    assert f"--consumer --topic {TOPIC} --group group-g --command-config FILE." in await explained()
    await stage.allow(acl(USER, READ, G))
    assert REFUSED_LATELY not in await explained()
    await stage.caller(USER).call("ShareGroupDescribe", new("ShareGroupDescribe", group_ids=["other"]))
    assert f"{REFUSED_LATELY}User:u may not DESCRIBE GROUP 'other'." in await described("other")
    assert REFUSED_LATELY not in await described("third")
    await asyncio.sleep(RECENT_S + 1)
    assert REFUSED_LATELY not in await described("other")
