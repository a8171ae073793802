"""Why a worker's jobs failed, as the cluster gets it: exceptions, values that cannot be decoded, time-outs, processes
that end, and stops (CL-165)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from sharegroups.aio import ShareConsumer
from sharegroups.messages import Message
from sharegroups.worker import Accept, Reject, Release, Retry, runner
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.policy import Kind, decide
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import Job, JobSpec, run_async, run_blocking
from sharegroups.worker.pools import Finished
from sharegroups.worker.processes import ProcessPool
from sharegroups.worker.runner import Runner
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce

from . import failing
from .failing import OddError, deep, ends_badly, shallow
from .test_threads import on_a_loop, until


def noted(value: bytes) -> None:
    error = OddError("bad")
    error.add_note("while order 7 was packed")
    raise error


def many(value: bytes) -> None:
    raise ExceptionGroup("two failed", [OddError("inner a"), ValueError("inner b")])


def wrong_source(value: bytes) -> None:
    compile("x = = 1", "formula", "exec")


def huge(value: bytes) -> None:
    raise ValueError("x" * 10_000_000)


def hostile(value: bytes) -> None:
    raise ValueError("\x1b[2J\u202e<b>\udcff")


def endless(value: bytes) -> None:
    endless(value)


def _reason(handler: Callable[..., Any], is_async: bool = False) -> str:
    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=is_async, in_process=False)
    verdict = asyncio.run(run_async(spec, b"v")) if is_async else run_blocking(spec, b"v")
    reason = decide(verdict, 1, Retry(), 5, 0).reason
    assert len(reason.encode()) <= 1_024
    return reason


@pytest.mark.rule("CL-180")
def test_the_log_says_how_much_of_a_long_message_it_leaves_out() -> None:
    def lines(value: bytes) -> None:
        raise ValueError("a line\n" * 1_000_000)

    one, many = (
        run_blocking(JobSpec("t", each, None, None, Retry(), {}, False, False), b"v") for each in (huge, lines)
    )
    assert one.why == "ValueError: " + "x" * 500 + "… (9,999,500 characters cut off)"
    assert many.why.endswith("… (6,999,500 characters cut off)")
    assert one.trace.endswith("x… (9,999,012 characters cut off)"), "of the line that begins with the class"
    assert "  … (999,963 lines left out)\na line\n" in many.trace
    for verdict in (one, many):
        assert '    raise ValueError("' in verdict.trace, "where it was raised is still there"
        assert len(verdict.trace) < 4_000


def _with_frames(handler: Callable[[bytes], None]) -> list[list[str]]:
    """Return the lines of the reason, for a blocking and for an asyncio handler."""

    async def later(value: bytes) -> None:
        handler(value)

    return [_reason(handler).split("\n"), _reason(later, is_async=True).split("\n")]


@pytest.mark.rule("CL-165")
def test_an_exceptions_class_and_message_come_first_and_then_where_it_was_raised() -> None:
    for lines in _with_frames(deep):
        assert lines[0] == "ValueError: two lines of b'v'"
        assert lines[-1].strip() == 'raise ValueError(f"two\\nlines of {value!r}") from error'
        assert f'File "{failing.__file__}"' in lines[-2]
        assert lines[-2].endswith(", in deep")
        assert any("OddError: the first cause" in line for line in lines[1:]), "what it was caused by"
        assert not any("worker/job.py" in line for line in lines), "the worker's own frames mean nothing to a user"


@pytest.mark.rule("CL-165")
@pytest.mark.parametrize(
    ("handler", "first", "last"),
    [
        (shallow, f"{failing.__name__}.OddError: the first cause", 'raise OddError("the first cause")'),
        (noted, f"{failing.__name__}.OddError: bad", "while order 7 was packed"),
        (many, "ExceptionGroup: two failed (2 sub-exceptions)", "+------------------------------------"),
        (wrong_source, "SyntaxError: invalid syntax", "^"),
        (hostile, "ValueError: \\x1b[2J\\u202e<b>\\xff", r'raise ValueError("\x1b[2J\u202e<b>\udcff")'),
        (endless, "RecursionError: maximum recursion depth exceeded", "[Previous line repeated 9"),
    ],
)
def test_the_first_line_is_a_tracebacks_last_one(handler: Callable[[bytes], None], first: str, last: str) -> None:
    for lines in _with_frames(handler):
        assert lines[0] == first
        assert lines[-1].strip().startswith(last)
        assert not any(character in "\x1b\u202e\udcff" for line in lines for character in line)


@pytest.mark.rule("CL-165")
def test_a_message_of_ten_megabytes_is_cut_and_leaves_the_traceback_its_room() -> None:
    for lines in _with_frames(huge):
        assert lines[0] == "ValueError: " + "x" * 485 + "…"
        assert lines[-1].strip() == 'raise ValueError("x" * 10_000_000)'


@pytest.mark.rule("CL-165", "CL-120")
def test_other_causes_are_the_reason() -> None:
    def rejecting(_: bytes) -> None:
        raise Reject("it has no address")

    def waiting(_: bytes) -> None:
        raise Release("the printer is off", delay=3)

    def done(_: bytes) -> None:
        raise Accept("seen before")

    assert _reason(rejecting) == "Reject: it has no address"
    assert _reason(waiting) == "Release: the printer is off"
    assert _reason(done) == ""
    spec = JobSpec("t", print, int, None, Retry(), {}, is_async=False, in_process=False)
    for value, expected in (
        (b"seven", "the value cannot be decoded by int: ValueError: invalid literal for int() with base 10: b'seven'"),
        (None, "the value cannot be decoded by int: the record has no value (a tombstone)"),
    ):
        assert decide(run_blocking(spec, value), 1, Retry(), 5, 0).reason == expected


def _working(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, spec: JobSpec, grace: float = 1.0
) -> tuple[Runner, asyncio.Task[None]]:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings, {"t": spec}, concurrency=4, prefetch=10, grace=grace, limits=GroupLimits(5), tally=Tally(["t"])
    )
    return worker, asyncio.create_task(worker.run())


@pytest.mark.rule("CL-165", "PL-942")
@on_fake_cluster()
async def test_a_failed_jobs_reason_is_with_the_record_and_the_newest_one_counts(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: dict[bytes, int] = {}

    async def handler(value: bytes) -> None:
        runs[value] = runs.get(value, 0) + 1
        if value == b"v0":
            raise OddError(f"run {runs[value]}")
        if value == b"v1":
            raise Reject("no address")
        if value == b"v2":
            await asyncio.sleep(3_600)

    produce(fake, 4)
    spec = JobSpec("t", handler, None, 10.0, Retry(limit=3, backoff=1), {}, is_async=True, in_process=False)
    worker, running = _working(fake, monkeypatch, spec)
    for _ in range(120):
        await asyncio.sleep(1)
        if set(fake.states("t").values()) <= {"archived", "acknowledged"}:
            break
    worker.stop()
    await running
    found = fake.reasons("t")
    assert found.keys() == {0, 1, 2}, "the job that succeeded has none"
    assert found[0][0] == 3
    assert found[0][1].startswith(f"{failing.__name__}.OddError: run 3\nTraceback (most recent call last):\n")
    assert found[0][1].endswith('raise OddError(f"run {runs[value]}")')
    assert found[1] == (1, "Reject: no address")
    assert found[2] == (3, "it did not return within its timeout of 10 s, and was cancelled")


@pytest.mark.rule("CL-165", "CL-127")
@on_fake_cluster()
async def test_a_job_that_a_stop_cut_off_has_that_as_its_reason(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its last delivery it becomes a dead letter, so a reader of that must find out why."""

    async def endless_handler(_: bytes) -> None:
        await asyncio.sleep(3_600)

    produce(fake, 1)
    spec = JobSpec("t", endless_handler, None, None, Retry(), {}, is_async=True, in_process=False)
    for count in range(1, 6):
        worker, running = _working(fake, monkeypatch, spec)
        await asyncio.sleep(5)
        worker.stop()
        await running
        assert fake.reasons("t") == {0: (count, "its job did not end within 1 s of the stop of its worker")}
    assert fake.states("t") == {0: "archived"}


class Record:
    """The parts of a message that a handler process gets."""

    def __init__(self, value: bytes) -> None:
        self.value = lambda: value

    def __getattr__(self, name: str) -> Callable[[], object]:
        given = {"topic": "t", "partition": 0, "offset": 0, "delivery_count": 1, "key": None, "headers": []}
        return lambda: given[name]


@pytest.mark.rule("CL-165", "CL-122")
@on_a_loop
async def test_a_handler_process_sends_the_reason_and_its_own_end_is_one() -> None:
    """Of CL-122 this shows that a process is ended at its time-out and replaced (b), and that a job fails whose process
    ends in the middle of it (c). It does not show where asyncio and blocking handlers run, what is refused at
    registration (a), jobs that were not completely sent (c), process groups and forks (d, e), or abandoned tasks
    (f)."""
    finished: list[Finished] = []
    spec = JobSpec("t", ends_badly, None, 60.0, Retry(), {}, is_async=False, in_process=True)
    late = JobSpec("t", ends_badly, None, 0.2, Retry(), {}, is_async=False, in_process=True)
    pool = ProcessPool(1, {"t": spec}, finished.extend, lambda error: pytest.fail(str(error)))
    await pool.start()
    try:
        for value in (b"raises", b"rejects", b"is killed", b"exits", b"hangs"):
            which = late if value == b"hangs" else spec
            pool.submit([Job(which, cast(Message, Record(value)), cast(Any, None), 0.0)])
            before = len(finished)
            await until(lambda before=before: len(finished) > before)  # type: ignore[misc]
    finally:
        await pool.stop()
    raised, *others = [decide(one.verdict, 1, Retry(), 5, 0).reason for one in finished]
    assert raised.startswith("ValueError: two lines of b'raises'\n")
    assert raised.split("\n")[-2].endswith(", in deep")
    assert others == [
        "Reject: no address",
        "its process was killed by signal 9 (SIGKILL)",
        "its process ended with exit status 7",
        "it did not return within its timeout of 0.2 s, and its process was ended",
    ]
    assert [one.verdict.kind for one in finished] == [Kind.FAILED, Kind.REJECTED, *[Kind.FAILED] * 3]
