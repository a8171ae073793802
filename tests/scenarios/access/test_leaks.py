"""Without permission, a caller learns nothing from a response: it is the same, byte for byte, whether or not a name
exists, except for the name itself.

Topic ids are the exception: an unknown id gets UNKNOWN_TOPIC_ID for every caller, as in Kafka; ids cannot be guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import pytest

from kip932.acls import Acl, Operation, ResourceType
from kip932.ids import KEY_TYPE_GROUP, KEY_TYPE_SHARE, KEY_TYPE_TRANSACTION, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.rpc.transport import TransportError
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.members import joined
from tests.scenarios.access.stage import GROUP, TOPIC, TRANSACTION, Stage, acl, on_stage
from tests.scenarios.access.test_matrix import QUESTIONS, served

USER = "User:eve"
MEMBER = "member-m"
#: Names that exist, each with a name of the same length that does not.
ALIKE: Final = {TOPIC: "nothing", GROUP: "unknown", TRANSACTION: "no-such-trans", MEMBER: "nomember"}
#: The names that are replaced by placeholders.
_PLACES: Final = (TOPIC, GROUP, TRANSACTION, MEMBER)

Fill = Callable[[Any, dict[str, str], bytes, Random], None]


def _requests() -> Iterator[tuple[str, Fill]]:
    """Yield RPCs that name things, each with a function that fills in the request."""

    def find(kind: int, name: str) -> Fill:
        def fill(request: Any, names: dict[str, str], _id: bytes, _rng: Random) -> None:
            request.key_type = kind
            request.coordinator_keys.append(names.get(name, name))

        return fill

    for kind, name in (
        (KEY_TYPE_GROUP, GROUP),
        (KEY_TYPE_TRANSACTION, TRANSACTION),
        (KEY_TYPE_SHARE, "g:x:0"),
        (9, GROUP),
    ):
        yield "FindCoordinator", find(kind, name)
    for function in (_metadata, _delete_topics, _create_topics, _create_partitions):
        yield "".join(word.capitalize() for word in function.__name__.split("_")), function
    for rpc, kind, name in itertools.product(
        ("DescribeConfigs", "IncrementalAlterConfigs"), (RESOURCE_TOPIC, RESOURCE_GROUP), (TOPIC, GROUP)
    ):
        yield rpc, _configs(kind, name)
    yield "InitProducerId", _init
    yield "EndTxn", _end
    yield "DescribeTransactions", lambda request, names, _id, _rng: request.transactional_ids.append(names[TRANSACTION])
    yield "ListTransactions", lambda request, _names, _id, _rng: None
    yield "ListGroups", lambda request, _names, _id, _rng: None
    yield "ShareGroupHeartbeat", _heartbeat
    yield "ShareGroupDescribe", lambda request, names, _id, _rng: request.group_ids.append(names[GROUP])
    yield "DeleteGroups", lambda request, names, _id, _rng: request.groups_names.append(names[GROUP])
    yield "DescribeShareGroupOffsets", _describe_offsets
    yield "AlterShareGroupOffsets", _alter_offsets
    yield "DeleteShareGroupOffsets", _delete_offsets
    yield "ShareFetch", _share
    yield "ShareAcknowledge", _share
    yield "ExplainRecord", _explain
    yield "ListShareProgress", _progress
    yield "ListOffsets", _list_offsets
    yield "DescribeLogDirs", lambda request, names, _id, _rng: request.topics.values.add(topic=names[TOPIC])
    yield "Produce", _produce
    yield "Fetch", _by_id
    yield "DeleteRecords", _by_id


def _progress(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.by_partition = rng.random() < 0.5
    if rng.random() < 0.5:
        request.group_ids.append(names[GROUP])
    if rng.random() < 0.5:
        request.topic_names.append(names[TOPIC])


def _metadata(request: Any, names: dict[str, str], _id: bytes, _rng: Random) -> None:
    request.topics.values.add(name=names[TOPIC])


def _delete_topics(request: Any, names: dict[str, str], _id: bytes, _rng: Random) -> None:
    request.topics.add(name=names[TOPIC])


def _create_topics(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.validate_only = rng.random() < 0.5
    request.topics.add(name=names[TOPIC], num_partitions=rng.randrange(-1, 3), replication_factor=rng.randrange(-1, 2))


def _create_partitions(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.topics.add(name=names[TOPIC], count=rng.randrange(-1, 4))


def _configs(kind: int, name: str) -> Fill:
    def fill(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
        resource = request.resources.add(resource_type=kind, resource_name=names[name])
        if hasattr(resource, "configs"):
            key = rng.choice(("retention.ms", "errors.deadletterqueue.topic.name", "unknown"))
            resource.configs.add(name=key, value=names[TOPIC], config_operation=rng.randrange(4))

    return fill


def _init(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.transactional_id, request.transaction_timeout_ms = names[TRANSACTION], rng.choice((0, 60_000))
    request.producer_id = request.producer_epoch = rng.choice((-1, 5))


def _end(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.transactional_id, request.producer_id = names[TRANSACTION], rng.choice((-1, 5))
    request.committed, request.by_operator = rng.random() < 0.5, rng.random() < 0.5


def _heartbeat(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.group_id, request.member_id = names[GROUP], rng.choice((names[MEMBER], "", "other"))
    request.member_epoch = rng.choice((-2, -1, 0, 1, 2, 9))
    if rng.random() < 0.5:
        request.subscribed_topic_names.values.append(names[TOPIC])


def _describe_offsets(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    group = request.groups.add(group_id=names[GROUP], include_backlog=rng.random() < 0.5)
    if rng.random() < 0.7:
        group.topics.values.add(topic_name=names[TOPIC], partitions=[rng.randrange(3)])


def _alter_offsets(request: Any, names: dict[str, str], _id: bytes, rng: Random) -> None:
    request.group_id = names[GROUP]
    topic = request.topics.values.add(topic_name=names[TOPIC])
    topic.partitions.add(partition_index=rng.randrange(3), start_offset=rng.randrange(-3, 4))


def _delete_offsets(request: Any, names: dict[str, str], _id: bytes, _rng: Random) -> None:
    request.group_id = names[GROUP]
    request.topics.values.add(topic_name=names[TOPIC])


def _share(request: Any, names: dict[str, str], topic_id: bytes, rng: Random) -> None:
    request.group_id, request.member_id = names[GROUP], rng.choice((names[MEMBER], "", "other"))
    request.share_session_epoch = rng.choice((-2, -1, 0, 1, 9))
    if rng.random() < 0.7:
        part = request.topics.add(topic_id=topic_id).partitions.add(partition_index=rng.randrange(3))
        if rng.random() < 0.7:
            part.acknowledgement_batches.add(first_offset=0, last_offset=0, acknowledge_types=[rng.randrange(6)])


def _explain(request: Any, names: dict[str, str], topic_id: bytes, rng: Random) -> None:
    request.group_id, request.topic_id = names[GROUP], topic_id
    request.partition_index, request.offset = rng.randrange(3), rng.randrange(-1, 5)


def _list_offsets(request: Any, names: dict[str, str], topic_id: bytes, rng: Random) -> None:
    part = request.topics.add(topic_id=topic_id).partitions.add(partition_index=rng.randrange(3))
    part.timestamp, part.share_group_id = rng.randrange(-4, 3), names[GROUP]


def _produce(request: Any, names: dict[str, str], topic_id: bytes, rng: Random) -> None:
    request.acks, request.transactional_id = rng.choice((-1, 0, 1)), names[TRANSACTION]
    request.topic_data.add(topic_id=topic_id).partition_data.add(index=rng.randrange(3))


def _by_id(request: Any, _names: dict[str, str], topic_id: bytes, rng: Random) -> None:
    part = request.topics.add(topic_id=topic_id).partitions.add()
    setattr(part, part.DESCRIPTOR.fields[0].name, rng.randrange(3))


REQUESTS: Final = tuple(_requests())


async def seen(stage: Stage, rpc: str, request: Any) -> bytes:
    """Return what a caller without any permission sees: the response's bytes, or the status that ends the call."""
    try:
        return bytes((await stage.caller(USER, "eve").call(rpc, request)).SerializeToString())
    except TransportError as error:
        return str(error).encode()


async def _inhabited(stage: Stage) -> None:
    """Put all names to use: let a member hold a record, and open a transaction."""
    member = await joined(stage, "User:admin", MEMBER)
    await stage.admin.produce(stage.topic_id, 3)
    await member.open_with_records()
    writer = Writer(stage.admin, stage.topic_id)
    writer.transactional_id = TRANSACTION
    await writer.write(1)


def _same(names: dict[str, str], data: bytes) -> bytes:
    """Replace each name from the request by a placeholder."""
    for place in _PLACES:
        data = data.replace(names[place].encode(), b"?" * len(place))
    return data


def test_every_rpc_that_names_something_is_asked_here() -> None:
    """Except for streams, whose messages go through the same handlers, and requests that name nothing."""
    nameless = {"DescribeCluster", "ProduceStream", "ShareStream", "CreateAcls", "DescribeAcls", "DeleteAcls",
                "AlterClientQuotas", "DescribeClientQuotas"}  # fmt: skip
    nameless |= {"DescribeUserScramCredentials", "AlterUserScramCredentials"}
    assert {rpc for rpc, _ in REQUESTS} == {ask.rpc for ask in QUESTIONS.values() if served(ask)} - nameless


@pytest.mark.parametrize(
    "number", range(len(REQUESTS)), ids=[f"{rpc} {index}" for index, (rpc, _) in enumerate(REQUESTS)]
)
@pytest.mark.rule("CM-61", "GC-149")
@on_stage()
async def test_names_that_exist_and_names_that_do_not_are_answered_alike(stage: Stage, number: int) -> None:
    rpc, fill = REQUESTS[number]
    await _inhabited(stage)
    known = {name: name for name in ALIKE}
    assert all(len(name) == len(other) for name, other in ALIKE.items())
    for seed in range(40):
        answers = set()
        for chosen in itertools.product((True, False), repeat=2):
            names = known | {
                name: ALIKE[name] for name, exists in zip((TOPIC, GROUP), chosen, strict=True) if not exists
            }
            names |= {TRANSACTION: ALIKE[TRANSACTION], MEMBER: ALIKE[MEMBER]} if not chosen[0] else {}
            request = METHODS[rpc].request_type()
            fill(request, names, stage.topic_id, Random(seed))
            answers.add(_same(names, await seen(stage, rpc, request)))
        assert len(answers) == 1, (seed, answers)


#: Permissions on the name that do not disclose it.
BLIND: Final = (
    (acl(USER, Operation.CREATE, ResourceType.TOPIC), acl(USER, Operation.CREATE, ResourceType.TOPIC, ALIKE[TOPIC])),
    (acl(USER, Operation.ALL, ResourceType.CLUSTER),),
)


@pytest.mark.parametrize("entries", BLIND, ids=["CREATE", "the cluster"])
@pytest.mark.rule("CM-61")
@on_stage()
async def test_a_topic_is_not_shown_to_who_may_do_something_else(stage: Stage, entries: tuple[Acl, ...]) -> None:
    await _inhabited(stage)
    await stage.allow(*entries)
    for rpc, fill in REQUESTS:
        if rpc not in {"Metadata", "DescribeConfigs", "CreatePartitions", "DescribeShareGroupOffsets"}:
            continue
        answers = set()
        for topic in (TOPIC, ALIKE[TOPIC]):
            names = {name: name for name in ALIKE} | {TOPIC: topic}
            request = METHODS[rpc].request_type()
            fill(request, names, stage.topic_id, Random(1))
            answers.add(_same(names, await seen(stage, rpc, request)))
        assert len(answers) == 1, answers


@pytest.mark.rule("CM-61")
@on_stage()
async def test_no_answer_to_a_caller_without_permission_contains_a_name_that_it_did_not_send(stage: Stage) -> None:
    await _inhabited(stage)
    for seed, (rpc, fill) in itertools.product(range(20), REQUESTS):
        request = METHODS[rpc].request_type()
        fill(request, dict(ALIKE), stage.topic_id, Random(seed))
        answer = await seen(stage, rpc, request)
        assert [name for name in ALIKE if name.encode() in answer] == [], rpc
