"""The blocking clients: threads, interruption, callbacks on the caller's thread. Real time, real loop thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kip932.errors import KafkaError
from sharegroups import (
    ConcurrentModificationError,
    ConfigError,
    DeliveryReport,
    IllegalStateError,
    Producer,
    ShareConsumer,
    WakeupError,
)
from sharegroups.errors import InvalidGroupIdError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import produce


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("t")
    return cluster


def consumer(fake: FakeCluster, **settings: Any) -> ShareConsumer:
    given = {"bootstrap.servers": fake.bootstrap, "group.id": "g", "share.acquire.mode": "batch_optimized"} | settings
    return ShareConsumer(given, transport=fake.transport())


@pytest.mark.scenario("S-004")
@pytest.mark.rule("CL-26", "CL-45")
def test_records_are_polled_and_accepted(fake: FakeCluster) -> None:
    produce(fake, 5)
    threads: list[int] = []
    with consumer(fake) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: threads.append(threading.get_ident()))
        c.subscribe(["t"])
        messages = c.poll(5)
        assert [m.offset() for m in messages] == [0, 1, 2, 3, 4]
        assert messages.count() == 5
        assert [m.offset() for m in messages[1:3]] == [1, 2]
        assert messages[1:3].count() == 2
        assert list(c.commit_sync().values()) == [None]
        assert c.metrics()
    assert threads == [threading.get_ident()]
    assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-147")
def test_the_groups_limit_and_dead_letter_topic_are_those_of_the_last_answer(fake: FakeCluster) -> None:
    with consumer(fake) as c:
        assert (c.delivery_count_limit(), c.dead_letter_topic()) == (None, None), "before any answer"
        c.subscribe(["t"])
        for limit, topic in ((7, "letters"), (3, "")):
            fake.delivery_count_limit, fake.dead_letter_topic = limit, topic
            produce(fake)
            assert len(c.poll(5)) == 1
            assert (c.delivery_count_limit(), c.dead_letter_topic()) == (limit, topic)


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-006")
def test_the_callback_may_not_use_the_consumer(fake: FakeCluster) -> None:
    produce(fake)
    refused: list[str] = []
    with consumer(fake) as c:

        def callback(offsets: object, error: KafkaError | None) -> None:
            for call in (c.close, lambda: c.subscribe(["t"]), lambda: c.poll(1)):
                with pytest.raises(IllegalStateError, match="callback") as problem:
                    call()
                refused.append(str(problem.value))

        c.set_acknowledgement_commit_callback(callback)
        c.subscribe(["t"])
        c.poll(5)
        c.commit_sync()
    assert len(refused) == 3


@pytest.mark.rule("CL-29")
def test_a_second_thread_is_refused_and_wakeup_ends_a_poll(fake: FakeCluster) -> None:
    with consumer(fake) as c:
        c.subscribe(["t"])
        entered = threading.Event()
        outcome: list[BaseException] = []

        def poll() -> None:
            try:
                entered.set()
                c.poll(30)
            except WakeupError as error:
                outcome.append(error)

        thread = threading.Thread(target=poll)
        thread.start()
        entered.wait()
        problem: Exception | None = None
        while problem is None:
            try:
                c.subscription()
                c.subscribe(["t"])
            except ConcurrentModificationError as error:
                problem = error
        c.wakeup()
        thread.join(10)
        assert len(outcome) == 1


@pytest.mark.rule("CL-21")
def test_an_interrupted_poll_loses_no_records(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(fake, 2)
    with consumer(fake) as c:
        c.subscribe(["t"])
        real = c._thread.call

        def interrupted(work: Any, take_back: Any = None) -> Any:
            monkeypatch.setattr(c._thread, "call", real)
            assert real(work).count() == 2
            c._thread.run(take_back)
            raise KeyboardInterrupt

        monkeypatch.setattr(c._thread, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            c.poll(5)
        assert [m.delivery_count() for m in c.poll(5)] == [1, 1]


def test_the_producer_delivers_and_calls_back_on_the_flushing_thread(fake: FakeCluster) -> None:
    heard: list[tuple[int, int]] = []

    def done(error: KafkaError | None, report: DeliveryReport) -> None:
        assert error is None
        heard.append((report.offset(), threading.get_ident()))

    with Producer({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as p:
        for number in range(1000):
            p.produce("t", str(number), on_delivery=done)
        assert p.flush(30) == 0
        assert [offset for offset, _ in heard] == list(range(1000))
        assert {thread for _, thread in heard} == {threading.get_ident()}
    with pytest.raises(IllegalStateError):
        p.produce("t", b"late")
    assert len(fake.produces) < 200


@pytest.mark.rule("CL-142")
def test_a_blocking_send_that_times_out_takes_its_record_back_and_says_what_became_of_it(fake: FakeCluster) -> None:
    # After one refusal the record is in its back-off when the time-out comes, so no request carries it.
    patient = {"bootstrap.servers": fake.bootstrap, "retry.backoff.ms": 60_000, "retry.backoff.max.ms": 60_000}
    with Producer(patient, transport=fake.transport()) as p:
        assert p.send("t", b"a", timeout=30).offset() == 0
        fake.errors["produce"].append(19)  # NOT_ENOUGH_REPLICAS: nothing was written
        with pytest.raises(TimeoutError, match=r"'t' within 1 s\. The record is not sent any more, and not stored\."):
            p.send("t", b"gone", timeout=1)
        assert len(p) == 0
        assert not fake.errors["produce"]
    with Producer({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as p:
        assert p.send("t", b"b").offset() == 1
        hold = p._thread.run(asyncio.Event)
        fake.hold_produce = hold
        with pytest.raises(TimeoutError, match="The record may be stored: a request carries it"):
            p.send("t", b"carried", timeout=0.3)
        p._thread.post(hold.set)
        assert p.flush(30) == 0
        with pytest.raises(TimeoutError, match="The record is not sent any more, and not stored"):
            p.send("missing", b"x", timeout=0.1)
        with pytest.raises(ValueError, match="timeout"):
            p.send("t", b"x", timeout="1")  # type: ignore[arg-type]
    assert fake.log("t").end == 3
    with pytest.raises(IllegalStateError):
        p.send("t", b"late")


@pytest.mark.rule("CL-142")
def test_a_time_out_without_a_cause_says_what_became_of_the_record(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is that of CL-142, for a time-out as Python 3.11.2 raises it; a serializer's own TimeoutError is
    unchanged."""

    def ended(work: Any) -> None:
        work.close()
        try:
            cancelled = asyncio.CancelledError()
            cancelled.add_note("The record is stored.")
            raise cancelled
        except asyncio.CancelledError:
            raise TimeoutError  # noqa: B904 - without a cause

    def slow(value: object) -> bytes:
        raise TimeoutError("no schema in time")

    with Producer({"bootstrap.servers": fake.bootstrap, "value.serializer": slow}, transport=fake.transport()) as p:
        with pytest.raises(TimeoutError, match=r"^no schema in time$"):
            p.send("t", "a", timeout=30)
        monkeypatch.setattr(p._thread, "call", ended)
        with pytest.raises(
            TimeoutError, match=r"^no confirmation of a record for 't' within 1 s\. The record is stored\.$"
        ):
            p.send("t", "a", timeout=1)
        monkeypatch.undo()


@pytest.mark.rule("CL-20", "CL-45")
def test_missing_group_wrong_names_and_values_are_reported() -> None:
    with pytest.raises(InvalidGroupIdError):
        ShareConsumer(bootstrap_servers="h:1", group_id=" ")
    with pytest.raises(ConfigError, match=r"Did you mean 'max\.poll\.records'"):
        ShareConsumer({"bootstrap.servers": "h:1", "group.id": "g", "max.poll.record": 1})
    with pytest.raises(ConfigError, match="one of implicit, explicit"):
        ShareConsumer({"bootstrap.servers": "h:1", "group.id": "g", "share.acknowledgement.mode": "auto"})
    with pytest.raises(ConfigError, match="host:port"):
        ShareConsumer({"bootstrap.servers": "nowhere", "group.id": "g"})
