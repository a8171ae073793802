"""All share coordinators are asked at once; unless all of them respond, there is no result (CM-161, SC-116)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip932 import errors
from kip932.ids import STARTS_TOPICS_MAX, SharePartitionKey, state_shard
from kip932.internal.v1.read_topic_start_offsets_pb2 import ReadTopicStartOffsetsRequest
from kip932.rpc.transport import TransportError, TransportStatus
from kip932.state_values import InitializeState, StoredStart
from shard_runtime.cluster.owners import OwnerAddress
from share_persister.messages import METHODS
from share_persister.topic_starts import TopicStartOffsets
from tests.support.coordinator_nodes import STATE_SERVICE, Net
from tests.support.share_coordinators import SHARDS, CoordinatorProcess
from tests.support.share_state import OTHER_TOPIC, TOPIC
from tests.support.virtual_time import now_s, virtual

#: Keys of one topic, spread over all shards.
KEYS = [SharePartitionKey(f"g{number % 3}", TOPIC, number) for number in range(10)]
ELSEWHERE = OwnerAddress(9, "elsewhere", 1)


class Two:
    """Two coordinator nodes; the second owns the shards in `second`."""

    def __init__(self, *second: int) -> None:
        self.net = Net()
        self.one, self.two = self.net.real("one:1"), self.net.real("two:1")
        self.second = second
        self.one.directory.elsewhere = dict.fromkeys(second, ELSEWHERE)
        self.two.directory.elsewhere = dict.fromkeys(set(range(SHARDS)) - set(second), ELSEWHERE)

    def owner(self, shard: int) -> str:
        return "two:1" if shard in self.second else "one:1"

    def state(self, key: SharePartitionKey, start_offset: int, process: CoordinatorProcess | None = None) -> None:
        shard = state_shard(key, SHARDS)
        owner = process or (self.two if shard in self.second else self.one)
        owner.directory.hosts[shard].post(InitializeState(key, 1, start_offset))

    def asker(self, **options: Any) -> TopicStartOffsets:
        return TopicStartOffsets(
            self.net.network.transport(), options.pop("resolve", self.owner), shards=SHARDS, **options
        )


@pytest.mark.rule("CM-161", "SC-118")
@virtual
async def test_the_groups_of_all_shards_are_returned_by_topic_group_and_partition() -> None:
    two = Two(1, 3)
    for offset, key in enumerate(KEYS):
        two.state(key, offset - 1)
    two.state(SharePartitionKey("g", OTHER_TOPIC, 0), 5)
    expected: dict[str, dict[int, StoredStart]] = {}
    for offset, key in enumerate(KEYS):
        expected.setdefault(key.group_id, {})[key.partition] = StoredStart(offset - 1, 0 if offset else -1)
    assert await two.asker().ask([TOPIC]) == {TOPIC: expected}
    assert {state_shard(key, SHARDS) for key in KEYS} == set(range(SHARDS))


@pytest.mark.rule("CM-161")
@virtual
async def test_this_process_answers_for_its_own_shards_without_a_message() -> None:
    two = Two(1, 3)
    for offset, key in enumerate(KEYS):
        two.state(key, offset)
    local = two.one.dispatcher
    asker = two.asker(local=local, resolve=lambda shard: "two:1" if shard in two.second else None)
    assert sum(len(starts) for starts in (await asker.ask([TOPIC]))[TOPIC].values()) == len(KEYS)


@pytest.mark.rule("CM-161")
@virtual
async def test_a_shard_without_a_known_node_a_refusal_or_a_missing_answer_ends_it() -> None:
    two = Two(1)
    with pytest.raises(errors.CoordinatorNotAvailableError, match="no node is known to serve shard 0"):
        await two.asker(resolve=lambda _: None).ask([TOPIC])
    with pytest.raises(errors.NotCoordinatorError, match="no node answered for shard 1"):
        await two.asker(resolve=lambda _: "one:1").ask([TOPIC])
    two.two.directory.hosts[1].refusal = errors.CoordinatorLoadInProgressError("shard 1 is being loaded")
    with pytest.raises(errors.CoordinatorLoadInProgressError):
        await two.asker().ask([TOPIC])
    two.two.directory.hosts[1].refusal = None
    two.two.dispatcher.active = False
    with pytest.raises(errors.NotCoordinatorError, match="no node answered for shard 1"):
        await two.asker().ask([TOPIC])


@pytest.mark.rule("CM-161")
@virtual
async def test_a_node_that_cannot_be_reached_or_is_of_an_older_build_ends_it() -> None:
    two = Two(1)
    with pytest.raises(errors.KafkaError):
        await two.asker(resolve=lambda shard: "gone:1" if shard == 1 else "one:1").ask([TOPIC])


@pytest.mark.rule("CM-161", "SC-116")
@virtual
async def test_a_shard_reports_only_what_is_durable_and_is_waited_for_within_bounds() -> None:
    two = Two()
    (key,) = KEYS[:1]
    host = two.one.directory.hosts[state_shard(key, SHARDS)]
    host.held = True
    asked = asyncio.ensure_future(two.asker().ask([TOPIC]))
    await asyncio.sleep(0.1)
    assert not asked.done()
    host.commit()
    assert await asked == {}
    started_s = now_s()
    with pytest.raises(errors.KafkaError):
        await two.asker().ask([TOPIC])
    assert now_s() - started_s <= 5


@pytest.mark.rule("CM-161")
@virtual
async def test_of_a_shard_that_two_nodes_answer_for_every_group_and_the_lower_offset_counts() -> None:
    """The shard has just moved: each node responded while it was the owner."""
    two = Two(1)
    key = next(key for key in KEYS if state_shard(key, SHARDS) == 1)
    other = next(key for key in KEYS if state_shard(key, SHARDS) == 1 and key.group_id != KEYS[0].group_id)
    two.one.directory.elsewhere = {}
    two.state(key, 9)
    two.state(key, 4, two.one)
    other = SharePartitionKey(key.group_id, TOPIC, key.partition)
    assert (await two.asker().ask([TOPIC]))[TOPIC][other.group_id][other.partition] == StoredStart(4, 0)


class _Refusing:
    async def read_topic_start_offsets(self, request: object, context: object) -> None:
        raise errors.SaslAuthenticationFailedError("no rule makes a name of CN=two")


@pytest.mark.rule("CM-198")
@virtual
async def test_a_node_that_does_not_serve_this_one_is_named() -> None:
    two = Two(1, 3)
    two.net.network.serve("two:1", STATE_SERVICE, _Refusing())
    with (
        capture_logs() as lines,
        pytest.raises(errors.UnknownServerError, match="a node that keeps share state"),
    ):
        await two.asker().ask([TOPIC])
    (line,) = lines
    assert (line["event"], line["node"]) == ("share_coordinator_refused_this_node", "two:1")
    assert "CN=two" in line["cause"]


@pytest.mark.rule("CM-161", "SC-116")
@virtual
@pytest.mark.parametrize(
    "topic_ids", [[], [TOPIC] * (STARTS_TOPICS_MAX + 1), [b"short"]], ids=["none", "too many", "no topic id"]
)
async def test_what_cannot_be_asked_is_refused(topic_ids: list[bytes]) -> None:
    net = Net()
    net.real("one:1")
    request = ReadTopicStartOffsetsRequest(topic_ids=topic_ids)
    with pytest.raises(TransportError) as refused:
        await net.network.transport().call("one:1", METHODS["ReadTopicStartOffsets"], request, 5)
    assert refused.value.status is TransportStatus.INVALID_ARGUMENT
