"""What happens around a handler: hooks, the job's span and metric."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from sharegroups.aio import ShareConsumer
from sharegroups.producing.produced import encode
from sharegroups.worker import Accept, JobInfo, JobInterrupted, Reject, Release, Retry, current_job, runner
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.hooks import Hooks
from sharegroups.worker.job import JobSpec, enter, run_blocking
from sharegroups.worker.runner import Runner
from sharegroups.worker.watching import JobWatch
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.telemetry import context, linked, parent_id, telemetry

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE}-{SPAN:016x}-01".encode()
SECONDS = "messaging.process.duration"


class Seen:
    """The calls of all hooks, each with the id of the span that was current."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.spans: set[int] = set()
        self.hooks = Hooks()
        self.hooks.add("before", lambda job: self._note("before", job))
        self.hooks.add("after", lambda job: self._note("after", job))
        self.hooks.add("failed", lambda job, error: self._note("failed", job, error))

    def _note(self, event: str, job: JobInfo, *error: BaseException) -> None:
        self.calls.append((event, job.offset, *(type(one) for one in error)))
        self.spans.add(trace.get_current_span().get_span_context().span_id)


async def run(fake: FakeCluster, handler: Callable[..., Any], watch: JobWatch, **more: Any) -> None:
    """Run one job, whose record carries TRACEPARENT, with a worker until it has ended; or as many `jobs`, if more
    records come."""
    fake.log("t").append(encode([(None, b"v", [("traceparent", TRACEPARENT)], 1000)])[0], 1)
    fake.notify()
    given = {"value": None, "timeout": None, "outcomes": {}, "jobs": 1} | more
    is_async = asyncio.iscoroutinefunction(handler)
    spec = JobSpec("t", handler, given["value"], given["timeout"], Retry(), given["outcomes"], is_async, False, watch)
    tally = Tally(["t"])
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings, {"t": spec}, concurrency=2, prefetch=2, grace=1.0, limits=GroupLimits(5), tally=tally, watch=watch
    )
    running = asyncio.create_task(worker.run())
    while tally.finished < given["jobs"]:  # noqa: ASYNC110 - a runner has no event for it
        await asyncio.sleep(0.05)
    worker.stop()
    await running


def watch(hooks: Hooks | None = None, *, continues: bool = False) -> JobWatch:
    return JobWatch(hooks or Hooks(), True, "me", "g", continues)


@pytest.fixture(autouse=True)
def _transport_of_the_fake_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a Runner's consumer use the transport of the test's cluster, which is made after this."""
    made: list[FakeCluster] = []
    begin = FakeCluster.__init__

    def noted(self: FakeCluster, *args: Any, **given: Any) -> None:
        made.append(self)
        begin(self, *args, **given)

    monkeypatch.setattr(FakeCluster, "__init__", noted)
    monkeypatch.setattr(
        runner, "ShareConsumer", lambda settings: ShareConsumer(settings, transport=made[-1].transport())
    )


def failing(error: BaseException) -> Callable[[bytes], None]:
    def handler(_: bytes) -> None:
        raise error

    return handler


@pytest.mark.rule("CL-174", "CL-173")
@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@on_fake_cluster()
async def test_a_job_has_a_span_that_is_current_in_its_handler_and_linked_to_its_producer(
    fake: FakeCluster, is_async: bool
) -> None:
    inside: list[int] = []

    def handler(_: bytes) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    async def task(_: bytes) -> None:
        handler(_)

    with telemetry() as found:
        with found.tracer().start_as_current_span("serve"):
            await run(fake, task if is_async else handler, watch())
        span = found.one("process t")
        assert span.kind is SpanKind.CONSUMER
        assert inside == [context(span).span_id]
        assert (span.parent, linked(span)) == (None, {SPAN})
        assert dict(span.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.consumer.group.name": "g",
            "messaging.client.id": "me",
            "messaging.kafka.offset": 0,
            "sharegroups.delivery_count": 1,
        }
        assert parent_id(found.one("ack t")) == context(span).span_id
        (point,) = found.points(SECONDS)
        assert point.count == 1
        assert "error.type" not in point.attributes


@pytest.mark.rule("CL-174")
@on_fake_cluster()
async def test_a_worker_may_continue_its_producers_trace(fake: FakeCluster) -> None:
    with telemetry() as found:
        await run(fake, lambda _: None, watch(continues=True))
        span = found.one("process t")
        assert (parent_id(span), linked(span)) == (SPAN, set())
        assert {f"{context(one).trace_id:032x}" for one in (span, found.one("ack t"))} == {TRACE}


@pytest.mark.rule("CL-177", "CL-174", "CL-175")
@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@on_fake_cluster()
async def test_a_failed_job_calls_its_hooks_and_says_why_in_its_span(fake: FakeCluster, is_async: bool) -> None:
    def handler(_: bytes) -> None:
        raise KeyError("k")

    async def task(_: bytes) -> None:
        handler(_)

    seen = Seen()
    with telemetry() as found:
        await run(fake, task if is_async else handler, watch(seen.hooks))
        span = found.one("process t")
        assert seen.calls[:3] == [("before", 0), ("failed", 0, KeyError), ("after", 0)]
        assert seen.spans == {context(span).span_id for span in found.spans("process t")}
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
        assert parent_id(found.one("nack t")) == context(span).span_id
        assert found.points(SECONDS)[0].attributes["error.type"] == "KeyError"


@pytest.mark.rule("CL-177")
@pytest.mark.parametrize(
    ("error", "failed"), [(Accept(), []), (Release(delay=5), []), (Reject("no"), [("failed", 0, Reject)])]
)
@on_fake_cluster()
async def test_what_neither_fails_nor_rejects_a_job_is_no_failure(
    fake: FakeCluster, error: BaseException, failed: Sequence[object]
) -> None:
    seen = Seen()
    with telemetry() as found:
        await run(fake, failing(error), watch(seen.hooks))
        assert seen.calls == [("before", 0), *failed, ("after", 0)]
        status = found.one("process t").status.status_code
        assert status is (StatusCode.ERROR if failed else StatusCode.UNSET)


@pytest.mark.rule("CL-177")
@on_fake_cluster()
async def test_a_value_that_cannot_be_decoded_is_reported_with_the_decoders_exception(fake: FakeCluster) -> None:
    seen = Seen()
    await run(fake, lambda _: None, watch(seen.hooks), value=int)
    assert seen.calls == [("before", 0), ("failed", 0, ValueError), ("after", 0)]


@pytest.mark.rule("CL-177")
@on_fake_cluster()
async def test_a_job_that_was_cancelled_for_its_time_out_is_reported_as_interrupted(fake: FakeCluster) -> None:
    async def handler(_: bytes) -> None:
        await asyncio.sleep(1_000)

    seen, errors = Seen(), list[BaseException]()
    seen.hooks.add("failed", lambda job, error: errors.append(error))
    with telemetry() as found:
        await run(fake, handler, watch(seen.hooks), timeout=1.0)
        assert seen.calls[:3] == [("before", 0), ("after", 0), ("failed", 0, JobInterrupted)]
        assert str(errors[0]) == "it did not return within its timeout of 1 s, and was cancelled"
        assert found.spans("process t")[0].status.status_code is StatusCode.ERROR
        assert found.points(SECONDS)[0].attributes["error.type"] == "CancelledError"


@pytest.mark.rule("CL-177")
@on_fake_cluster()
async def test_a_record_that_cannot_be_read_is_reported_as_interrupted(fake: FakeCluster) -> None:
    seen = Seen()
    fake.log("t").append(b"\xff\xff no batch", 1)
    await run(fake, lambda _: None, watch(seen.hooks))
    assert ("failed", 0, JobInterrupted) in seen.calls
    assert ("before", 0) not in seen.calls


@pytest.mark.rule("CL-178")
@on_fake_cluster()
async def test_hooks_that_raise_fail_no_job(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    hooks, done = Hooks(), threading.Event()
    for event, error in (("before", SystemExit(1)), ("after", KeyboardInterrupt())):
        hooks.add(event, partial(_raise, error))
    await run(fake, lambda _: done.set(), watch(hooks))
    assert done.is_set()
    assert fake.states("t") == {0: "acknowledged"}
    assert sum("the hook" in record.getMessage() for record in caplog.records) == 2


def _raise(error: BaseException, *_: object) -> None:
    raise error


@pytest.mark.rule("CL-174")
@on_fake_cluster()
async def test_the_log_line_about_a_failed_job_has_the_jobs_span(fake: FakeCluster) -> None:
    spans: list[int] = []

    class Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if "failed" in record.getMessage():
                spans.append(trace.get_current_span().get_span_context().span_id)
            return True

    named, own = logging.getLogger("sharegroups.worker"), Filter()
    named.addFilter(own)
    try:
        with telemetry() as found:
            await run(fake, failing(KeyError("k")), watch())
            assert spans[0] == context(found.spans("process t")[0]).span_id
    finally:
        named.removeFilter(own)


@pytest.mark.rule("CL-171")
@on_fake_cluster()
async def test_a_job_that_is_not_sampled_is_measured_and_its_children_are_not_sampled(fake: FakeCluster) -> None:
    with telemetry(ALWAYS_OFF) as found:
        inside: list[bool] = []

        def handler(_: bytes) -> None:
            inside.append(trace.get_current_span().get_span_context().trace_flags.sampled)
            assert current_job().offset == 0

        await run(fake, handler, watch())
        assert (inside, found.spans()) == ([False], [])
        assert [point.count for point in found.points(SECONDS)] == [1]


@pytest.mark.rule("CL-171")
@on_fake_cluster()
async def test_a_provider_that_is_set_while_a_worker_runs_is_used_from_its_next_poll_on(fake: FakeCluster) -> None:
    """The first job sets it; the second, which comes with a later poll, has a span and is measured."""
    with telemetry(set_up=False) as found:

        def handler(value: bytes) -> None:
            if value == b"v":
                found.set_up()
                fake.log("t").append(encode([(None, b"w", (), 1000)])[0], 1)
                fake.notify()

        await run(fake, handler, watch(), jobs=2)
        assert [dict(span.attributes or {})["messaging.kafka.offset"] for span in found.spans("process t")] == [1]
        assert [point.count for point in found.points(SECONDS)] == [1]


#: The most functions of this project that a job may call for its metric, besides those of a job without metrics.
CALLS_MAX = 6


@pytest.mark.rule("CL-175")
def test_a_measured_job_without_hooks_costs_a_few_calls_and_no_info() -> None:
    """What is prepared once is not done for each job: with a program that measures nothing as the base."""
    info: list[object] = []

    def current() -> JobInfo:
        info.append(1)
        return JobInfo("t", 0, 0, 1, None, [])

    job = copy_context()  # the current job is of this context alone
    job.run(enter, current)
    with telemetry(set_up=False) as found:
        spec = JobSpec("t", len, None, None, Retry(), {}, False, False, watch())
        base = job.run(_calls, spec)
        found.set_up(spans=False)
        assert spec.watch is not None
        spec.watch.refresh()
        measured = job.run(_calls, spec)
        assert [point.count for point in found.points(SECONDS)] == [100]
    assert info == []
    assert measured - base <= CALLS_MAX * 100


def _calls(spec: JobSpec) -> int:
    """Return how many functions of this project 100 jobs call."""
    count, own = 0, ("sharegroups", "kip932")

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        name = str(frame.f_globals.get("__name__"))
        count += event == "call" and name.partition(".")[0] in own

    assert spec.watch is not None
    sys.setprofile(called)
    try:
        for _ in range(100):
            verdict = run_blocking(spec, b"v")
            if spec.watch.is_needed:
                spec.watch.ended("t", verdict, 0.1)
    finally:
        sys.setprofile(None)
    return count


def test_a_watch_is_the_same_in_a_process_of_handlers() -> None:
    hooks = Hooks()
    hooks.add("stop", dict)
    with telemetry():
        copy = pickle.loads(pickle.dumps(JobWatch(hooks, True, "me", "g", True)))
        assert copy.is_needed
        assert copy.hooks.has("stop")
        assert copy.__getstate__()[1:] == ((True, "me", "g"), True)
    assert not JobWatch(Hooks(), True, "me", "g", False).is_needed
