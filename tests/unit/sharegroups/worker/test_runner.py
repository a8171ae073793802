"""The loop of a worker: the order of its steps when records have arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharegroups.aio import ShareConsumer
from sharegroups.aio.consumer import KeepAlive
from sharegroups.consuming.lock_renewals import Kept
from sharegroups.messages import Message
from sharegroups.worker import Release, Retry, runner
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import Job, JobSpec, current_job
from sharegroups.worker.runner import Runner
from sharegroups.worker.tasks import TaskPool
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce


@on_fake_cluster()
async def test_asyncio_handlers_begin_before_the_next_fetch_is_sent(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    sent_before: list[int] = []

    async def handler(_: bytes) -> None:
        sent_before.append(len(asked))

    asked: list[float] = []
    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings, {"t": spec}, concurrency=4, prefetch=10, grace=1.0, limits=GroupLimits(5), tally=Tally(["t"])
    )
    consumer = worker._consumer
    poll = consumer.poll

    async def noted(*args: object, **given: object) -> object:
        asked.append(asyncio.get_running_loop().time())
        return await poll(*args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(consumer, "poll", noted)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.5)
    before = len(asked)
    produce(fake, 1)
    await asyncio.sleep(0.1)
    assert sent_before == [before], "the handler waited for the next poll, which makes and sends a fetch"
    worker.stop()
    await running


@on_fake_cluster()
async def test_control_characters_of_an_exception_are_escaped_in_the_log(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    raised = asyncio.Event()

    async def handler(_: bytes) -> None:
        raised.set()
        raise ValueError("a\x1b[31mred")

    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings, {"t": spec}, concurrency=4, prefetch=10, grace=1.0, limits=GroupLimits(5), tally=Tally(["t"])
    )
    running = asyncio.create_task(worker.run())
    produce(fake, 1)
    await raised.wait()
    worker.stop()
    await running
    (said,) = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert "failed: ValueError: a\\x1b[31mred; it is redelivered in" in said
    assert said.endswith("\nValueError: a\\x1b[31mred"), "the traceback too"
    assert "\x1b" not in said


@on_fake_cluster()
async def test_what_no_handler_began_with_at_its_last_delivery_is_reported_and_does_not_count(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is kept until the grace period is over, and then released like the other one."""
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))

    async def handler(_: bytes) -> None:
        raise AssertionError

    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    limits, tally = GroupLimits(5, "letters"), Tally(["t"])
    worker = Runner(settings, {"t": spec}, concurrency=1, prefetch=10, grace=0.05, limits=limits, tally=tally)
    pool = worker._pools["t"]
    assert isinstance(pool, TaskPool)
    for offset, count in enumerate((4, 5)):
        reported = {"topic": "t", "partition": 0, "offset": offset, "delivery_count": count}
        message = SimpleNamespace(
            **{name: partial(int if name != "topic" else str, one) for name, one in reported.items()}
        )
        kept = SimpleNamespace(is_lost=lambda _: False)
        pool._ready.append(Job(spec, cast("Message", message), cast("Kept", kept), 0.0))
    monkeypatch.setattr(worker._jobs, "remove", lambda job: None)
    back: list[int] = []
    monkeypatch.setattr(worker._acknowledging, "take_back", lambda job: back.append(job.message.offset()))
    worker.stop()
    await worker.run()
    assert sorted(back) == [0, 1]
    (said,) = [record.getMessage() for record in caplog.records if "did not start" in record.getMessage()]
    assert said.startswith("t-0@1: ")
    assert said.endswith("within 0.05 s; its job will run again, and this does not count as a delivery")
    assert (tally.outcomes["t", "archived"], tally.events["given_back"]) == (0, 1)


@on_fake_cluster()
async def test_jobs_are_handed_over_before_their_locks_are_watched(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    steps: list[str] = []

    async def handler(_: bytes) -> None:
        steps.append("runs")

    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings, {"t": spec}, concurrency=4, prefetch=10, grace=1.0, limits=GroupLimits(5), tally=Tally(["t"])
    )
    pool = worker._pools["t"]
    submit, begin = pool.submit, KeepAlive.begin

    def submitted(jobs: Iterable[Job]) -> None:
        steps.append("handed over")
        submit(jobs)

    def begun(keeping: KeepAlive) -> Kept:
        steps.append("watched")
        return begin(keeping)

    monkeypatch.setattr(pool, "submit", submitted)
    monkeypatch.setattr(KeepAlive, "begin", begun)
    running = asyncio.create_task(worker.run())
    produce(fake, 1)
    await asyncio.sleep(1)
    worker.stop()
    await running
    assert steps == ["handed over", "watched", "runs"]
    assert fake.states("t") == {0: "acknowledged"}


@pytest.mark.rule("CL-123")
@on_fake_cluster()
async def test_a_release_that_is_shortened_is_one_warning_with_the_real_delay(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))

    async def handler(value: bytes) -> None:
        if value == b"v0":
            raise Release("not this week", delay=3 * 86_400)

    produce(fake, 3)
    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings, {"t": spec}, concurrency=4, prefetch=10, grace=1.0, limits=GroupLimits(5), tally=Tally(["t"])
    )
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(2)
    assert fake.states("t") == {0: "delayed", 1: "acknowledged", 2: "acknowledged"}
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert line.getMessage().startswith(
        "t-0@0: test_a_release_that_is_shortened_is_one_warning_with_the_real_delay.<locals>.handler, delivery 1 of 5, "
        "was released: Release: not this week; it is redelivered in 1 day, not in 3 days: the group allows no longer"
    )
    worker.stop()
    await running


def runner_of(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, handler: Callable[[bytes], object], grace: float
) -> Runner:
    """A worker of group g with one asyncio handler of topic t."""
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    limits, tally = GroupLimits(5), Tally(["t"])
    return Runner(settings, {"t": spec}, concurrency=2, prefetch=0, grace=grace, limits=limits, tally=tally)


class Slow:
    """A handler that takes `seconds`, and counts how many times it has ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.running = self.ended = self.cancelled = 0

    async def __call__(self, _: bytes) -> None:
        self.running += 1
        try:
            await asyncio.sleep(self.seconds)
            self.ended += 1
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)  # it cleans up
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


@pytest.mark.rule("CL-127")
@on_fake_cluster()
async def test_a_cancelled_worker_lets_its_jobs_end(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens, for example, in a task group in which another task fails."""
    handler = Slow(4)
    worker = runner_of(fake, monkeypatch, handler, 10.0)
    serving = asyncio.create_task(worker.run())
    produce(fake, 2)
    await asyncio.sleep(2)
    assert handler.running == 2
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (handler.running, handler.ended, handler.cancelled) == (0, 2, 0)
    assert worker._tally.line().startswith("2 done, 0 released")


@pytest.mark.rule("CL-127")
@pytest.mark.parametrize("again", [False, True])
@on_fake_cluster()
async def test_no_record_goes_back_while_its_asyncio_handler_runs(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    handler = Slow(100)
    worker = runner_of(fake, monkeypatch, handler, 3.0)
    running_at_close: list[int] = []
    close = worker._consumer.close

    async def closing(seconds: float) -> None:
        running_at_close.append(handler.running)
        await close(seconds)

    monkeypatch.setattr(worker._consumer, "close", closing)
    serving = asyncio.create_task(worker.run())
    produce(fake, 2)
    await asyncio.sleep(2)
    began = asyncio.get_running_loop().time()
    serving.cancel()
    if again:
        await asyncio.sleep(1)
        serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert running_at_close == [0]
    assert handler.cancelled == 2, "each was cancelled once, and could put its things in order"
    assert (asyncio.get_running_loop().time() - began < 2.5) is again, "a second cancellation waits for no grace"
    assert caplog.text.count("did not end within") == 2


def _worker(handler: Callable[[bytes], Awaitable[None]], concurrency: int = 4, **limits: Any) -> Runner:
    spec = JobSpec("t", handler, None, None, Retry(jitter=0), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": "node0:9000", "group.id": "g"}
    return Runner(
        settings,
        {"t": spec},
        concurrency=concurrency,
        prefetch=10,
        grace=1.0,
        limits=GroupLimits(**{"deliveries": 5, **limits}),
        tally=Tally(["t"]),
    )


@pytest.mark.rule("CL-146")
@on_fake_cluster()
async def test_a_record_that_was_delivered_often_runs_alone_and_nothing_more_is_asked_for(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    running: set[int] = set()
    beside: dict[int, set[int]] = {}
    unanswered: dict[int, int] = {}

    async def handler(_: bytes) -> None:
        info = current_job()
        beside[info.offset] = set(running)
        unanswered[info.offset] = sum(state == "acquired" for state, _, _ in states.values())
        running.add(info.offset)
        await asyncio.sleep(3)
        running.discard(info.offset)

    produce(fake, 8)
    ((partition, log),) = fake.logs.items()
    states = log.states["g"]
    for offset in range(4):
        states[offset] = ("available", "", 3 if offset in (1, 2) else 1)
    worker = _worker(handler)
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(60)
    worker.stop()
    await task
    assert beside[1] == beside[2] == set(), "alone"
    assert max(map(len, beside.values())) > 0, "the others run together"
    assert (unanswered[1], unanswered[2]) == (2, 1), "the outcome of what ran before is stored; nothing more was taken"
    assert all(state == "acknowledged" for state, _, _ in states.values()), (partition, states)
    assert len(beside) == 8


@pytest.mark.rule("CL-147")
@on_fake_cluster()
async def test_the_groups_limit_and_dead_letter_topic_of_the_moment_count(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))

    async def handler(_: bytes) -> None:
        if len(ran) == 1:  # changed while the first job runs
            fake.delivery_count_limit, fake.dead_letter_topic = 3, "letters"
            await asyncio.sleep(2)
        ran.append(current_job().delivery_count)
        raise ConnectionError

    ran: list[int] = []
    fake.delivery_count_limit, fake.dead_letter_topic = 8, ""
    produce(fake, 1)
    ((_, log),) = fake.logs.items()
    log.states["g"][0] = ("available", "", 2)
    worker = _worker(handler, letters_to="old")
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(4.5)
    assert ran == [3]
    said = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert "delivery 3 of 8, failed: ConnectionError; it is redelivered in 4.0 s" in said[0]
    await asyncio.sleep(4)
    worker.stop()
    await task
    assert ran[:2] == [3, 4], "the leader of this test archives nothing"
    said = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    text = "that was the last of 3 deliveries that the group allows; it is archived; it becomes a dead letter in let"
    assert text in said[1]


@pytest.mark.rule("CL-147")
@on_fake_cluster()
async def test_where_no_leader_has_said_any_the_limit_and_the_dead_letter_topic_of_the_start_count(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))

    async def handler(_: bytes) -> None:
        raise ConnectionError

    assert (fake.delivery_count_limit, fake.dead_letter_topic) == (None, None), "a leader of an older build"
    produce(fake, 2)
    ((_, log),) = fake.logs.items()
    log.states["g"][0] = ("available", "", 2)
    log.states["g"][1] = ("available", "", 1)
    worker = _worker(handler, deliveries=3, letters_to="old")
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(2)
    worker.stop()
    await task
    said = "\n".join(record.getMessage() for record in caplog.records)
    text = "that was the last of 3 deliveries that the group allows; it is archived; it becomes a dead letter in old"
    assert text in said
    assert "delivery 2 of 3, failed: ConnectionError; it is redelivered" in said
