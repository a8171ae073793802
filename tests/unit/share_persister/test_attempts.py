"""How many times the persister tries, how long it waits, and whether a failed write may have been applied."""

from __future__ import annotations

import asyncio
import gc
from random import Random

import pytest
from structlog.testing import capture_logs

from kip932 import errors
from kip932.state_values import ReadState, ReadSummary, StateSpan
from shard_runtime.hosting.shard import DamagedEntry
from share_persister import KAFKA_PROFILE, PersisterError, PersisterSettings
from tests.support.coordinator_nodes import CLUSTER_SERVICE, STATE_SERVICE, Net, Reply, change, failure_of, key
from tests.support.virtual_time import now_s, virtual


@pytest.mark.rule("GC-74", "PL-724", "SC-93", "PL-723", "SC-92")
@virtual
async def test_pauses_double_with_jitter_and_each_attempt_begins_with_a_lookup() -> None:
    net = Net()
    node = net.scripted(14, 15, 16, 3)
    persister = net.persister()
    await persister.write(change())
    pauses = [later - earlier for earlier, later in zip(node.times, node.times[1:], strict=False)]
    assert len(pauses) == 4
    for index, pause in enumerate(pauses):
        assert 0.1 * 2**index * 0.8 <= pause <= 0.1 * 2**index * 1.2
    assert len(net.cluster.asked) == 5
    await persister.close()


@pytest.mark.rule("PL-822")
@virtual
async def test_how_often_a_running_write_was_sent_can_be_asked() -> None:
    net = Net()
    node = net.scripted(14, 15)
    persister = net.persister()
    write = asyncio.get_running_loop().create_task(persister.write(change()))
    seen = []
    while not write.done():
        seen.append((len(node.requests), persister.write_attempts(key())))
        await asyncio.sleep(0.01)
    assert {sent for sent, _ in seen} >= {1, 2}
    assert [sent for sent, _ in seen] == [attempts for _, attempts in seen]
    assert persister.write_attempts(key()) == persister.write_attempts(key(7)) == 0
    second = [asyncio.get_running_loop().create_task(persister.write(change())) for _ in range(2)]
    await asyncio.sleep(0)
    assert persister.write_attempts(key()) <= 1, "another write, counted from the beginning"
    await asyncio.gather(*second)
    assert persister.write_attempts(key()) == 0
    await persister.close()


@pytest.mark.rule("GC-74", "PL-724", "SC-94", "PL-723")
def test_the_schedules_are_bounded() -> None:
    rng = Random(7)
    ours = PersisterSettings()
    assert [round(ours.pause_ms(n, rng) / (100 * 2 ** (n - 1)), 9) <= 1.2 for n in range(1, 9)] == [True] * 8
    assert all(800 <= ours.pause_ms(n, rng) <= 1_200 for n in range(5, ours.attempts))
    assert ours.attempts == 25
    assert 1_600 <= KAFKA_PROFILE.pause_ms(1, rng) <= 2_400
    assert 12_800 <= KAFKA_PROFILE.pause_ms(4, rng) <= 19_200
    assert all(24_000 <= KAFKA_PROFILE.pause_ms(n, rng) <= 36_000 for n in range(5, 9))
    assert KAFKA_PROFILE.attempts == 5


@pytest.mark.rule("CM-4", "GC-74", "PL-724")
@pytest.mark.parametrize("down_s", [3.2, 4.0, 7.0])
@virtual
async def test_a_coordinator_that_is_back_is_asked_within_a_second_or_so(down_s: float) -> None:
    """Waiting operations are served soon after a take-over, however long it took, rather than at the end of a doubled
    pause."""

    net = Net()
    node = net.scripted(*[16] * 40)
    persister = net.persister()
    asyncio.get_running_loop().call_later(down_s, node.replies.clear)
    await persister.write(change())
    assert now_s() - down_s <= 1.2
    await persister.close()


@pytest.mark.rule("PL-723", "12.16")
@virtual
async def test_the_operation_timeout_caps_everything_and_the_last_error_is_raised() -> None:
    net = Net()
    net.scripted(*[14] * 20)
    persister = net.persister()
    failure = await failure_of(persister)
    assert isinstance(failure.error, errors.CoordinatorLoadInProgressError)
    assert 6 <= now_s() <= 15
    await persister.close()


@pytest.mark.rule("PL-723", "GC-74", "SC-94")
@virtual
async def test_attempts_end_after_their_number() -> None:
    net = Net()
    node = net.scripted(*[15] * 20)
    persister = net.persister(settings=PersisterSettings(operation_timeout_ms=10**6, attempts=3))
    assert isinstance((await failure_of(persister)).error, errors.CoordinatorNotAvailableError)
    assert len(node.requests) == 3
    await persister.close()


@pytest.mark.rule("PL-723", "PL-707")
@virtual
async def test_a_peer_that_never_answers_costs_the_operation_timeout_and_leaves_the_outcome_open() -> None:
    net = Net()
    node = net.scripted("hang")
    persister = net.persister()
    failure = await failure_of(persister)
    assert now_s() == pytest.approx(15)
    assert failure.outcome_unknown
    await asyncio.sleep(0.1)
    await persister.write(change())
    assert len(node.requests) == 2, "the lane is free again"
    await persister.close()


@pytest.mark.rule("GC-74", "SC-92", "SC-95")
@virtual
async def test_a_request_without_an_answer_is_sent_again_when_its_time_is_over() -> None:
    assert PersisterSettings().request_timeout_ms == 30_000
    net = Net()
    node = net.scripted("hang")
    persister = net.persister(settings=PersisterSettings(operation_timeout_ms=90_000))
    await persister.write(change())
    first, second = node.times
    assert 30 <= second - first <= 30.2
    assert len(net.cluster.asked) == 2
    await persister.close()


@pytest.mark.rule("PL-603", "PL-722")
@pytest.mark.parametrize("reply", ["other", "nothing"])
@virtual
async def test_state_of_another_share_partition_is_not_taken(reply: Reply) -> None:
    net = Net()
    net.scripted(reply)
    persister = net.persister()
    with pytest.raises(PersisterError) as failure:
        await persister.read(ReadState(key(), 3, 1))
    assert isinstance(failure.value.error, errors.UnknownServerError)
    await persister.close()


@pytest.mark.rule("PL-707", "PL-722", "PL-732", "SC-92", "SC-96")
@pytest.mark.parametrize(
    ("replies", "code", "unknown"),
    [
        ([74], 74, False),
        ([124], 124, False),
        ([42], 42, False),
        ([69], 69, False),
        ([31], 31, False),
        ([35], 35, False),
        ([-1], -1, True),
        (["empty"], -1, True),
        (["nothing"], -1, True),
        (["other"], -1, True),
        ([16, 74], 74, True),
        ([15, 124], 124, True),
        (["break", 74], 74, True),
        ([3, 74], 74, False),
    ],
)
@virtual
async def test_whether_a_failed_write_may_have_landed(replies: list[Reply], code: int, unknown: bool) -> None:
    net = Net()
    net.scripted(*replies)
    persister = net.persister()
    failure = await failure_of(persister)
    assert (failure.error.code, failure.outcome_unknown) == (code, unknown)
    assert failure.leader_epoch == (9 if code == 74 else None)
    await persister.close()


@pytest.mark.rule("SC-114", "GC-74", "PL-707")
@pytest.mark.parametrize("beside", [False, True], ids=["another process", "this process"])
@virtual
async def test_what_is_in_quarantine_is_reported_at_once_and_nothing_was_applied(beside: bool) -> None:
    net = Net()
    world = net.real()
    for host in world.directory.hosts:
        host.states.quarantine(DamagedEntry("{sgs:4}:log", "7-3", "is damaged: its checksum is 0", None))
    persister = net.persister(local=world.dispatcher if beside else None)
    outcomes: list[object] = []
    for call in (persister.read(ReadState(key(), 3, 1)), persister.write(change((0, 1, 2, 1))),
                 persister.read_summary(ReadSummary(key(), StateSpan(0, 1)))):  # fmt: skip
        with pytest.raises(PersisterError) as failure:
            await call
        outcomes.append(failure.value)
    name = key().topic_partition
    for results in (await persister.initialize("g", 1, {name: 0}), await persister.delete("g", {name: 1}),
                 await persister.summary("g", [name])):  # fmt: skip
        outcomes.append(results[name])
    for outcome in outcomes:
        assert isinstance(outcome, PersisterError)
        assert isinstance(outcome.error, errors.InQuarantineError)
        assert (outcome.error.code, outcome.outcome_unknown) == (15, False)
        assert "entry 7-3 of {sgs:4}:log" in outcome.error.message
    assert now_s() < 0.1
    await persister.close()


@pytest.mark.rule("PL-723", "SC-92", "GC-74")
@virtual
async def test_a_broken_stream_is_opened_again() -> None:
    net = Net()
    node = net.scripted("break")
    persister = net.persister()
    await persister.write(change())
    assert len(node.requests) == 2
    await persister.close()


@pytest.mark.rule("PL-723")
@virtual
async def test_a_stopped_node_is_retried_until_it_is_back() -> None:
    net = Net()
    persister = net.persister()
    write = asyncio.create_task(persister.write(change()))
    await asyncio.sleep(1)
    net.scripted()
    await write
    await persister.close()


class _Refusing:
    """A node that does not serve the caller."""

    def __init__(self, error: errors.KafkaError) -> None:
        self.error = error

    async def state_stream(self, stream: object) -> None:
        raise self.error

    async def find_coordinator(self, request: object, context: object) -> None:
        raise self.error


@pytest.mark.rule("CM-198")
@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (errors.SaslAuthenticationFailedError("no rule makes a name of CN=two"), "ssl.principal.mapping.rules"),
        (errors.ClusterAuthorizationFailedError("User:two may not CLUSTER_ACTION CLUSTER"), "super.users"),
    ],
    ids=["unauthenticated", "denied"],
)
@pytest.mark.parametrize("asked", ["one:1", "seed:1"])
@virtual
async def test_a_refusal_by_another_node_is_logged_with_its_remedy_and_is_no_refusal_of_a_client(
    asked: str, refusal: errors.KafkaError, remedy: str
) -> None:
    net = Net()
    net.network.serve(asked, STATE_SERVICE if asked == "one:1" else CLUSTER_SERVICE, _Refusing(refusal))
    persister = net.persister()
    with capture_logs() as lines:
        for _ in range(3):
            failure = await failure_of(persister)
            assert (failure.error.code, failure.outcome_unknown) == (errors.UnknownServerError.code, False)
            assert "share_coordinator_refused_this_node" in failure.error.message
            assert asked not in failure.error.message
    assert [line["event"] for line in lines] == ["share_coordinator_refused_this_node"]
    assert lines[0]["node"] == asked
    assert refusal.message in lines[0]["cause"]
    assert remedy in lines[0]["remedy"]
    await asyncio.sleep(11)
    with capture_logs() as lines:
        await failure_of(persister)
    assert len(lines) == 1
    await persister.close()


@pytest.mark.parametrize("expected", ["1 operations wait for the coordinator", "CLUSTER_AUTHORIZATION_FAILED"])
@virtual
async def test_failures_leave_no_reference_cycles(expected: str) -> None:
    """On an overloaded node, such cycles would cost a garbage collection of a hundred objects for every ten
    refusals."""
    net = Net()
    net.scripted("hang")
    if expected != "CLUSTER_AUTHORIZATION_FAILED":
        settings = PersisterSettings(queue_max=1, attempts=1)
        persister = net.persister(settings=settings, resolve=lambda shard: "one:1")
        busy = []
        for number in (1, 2):  # one is in flight, the other fills the queue
            busy.append(asyncio.get_running_loop().create_task(persister.write(change(of=key(number)))))
            await asyncio.sleep(0.01)
    else:
        net.cluster.codes = [31] * 100  # CLUSTER_AUTHORIZATION_FAILED
        persister, busy = net.persister(settings=PersisterSettings(attempts=1)), []
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            with pytest.raises(PersisterError, match=expected):
                await persister.write(change())
        found = gc.collect()
    finally:
        gc.enable()
    assert found < 50
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    await persister.close()
