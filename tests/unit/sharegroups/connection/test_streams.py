"""Requests over one stream and their time limits, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kip932.api.v1.produce_pb2 import ProduceStreamRequest, ProduceStreamResponse
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.connection import wire
from sharegroups.connection.signal import Signal
from sharegroups.connection.streams import CorrelatedStream
from tests.support.virtual_time import now_s, run, virtual

_Stream = CorrelatedStream[ProduceStreamRequest, ProduceStreamResponse]


class _Peer:
    """A transport with one stream; `delays` gives the delay of each response in seconds, by correlation number."""

    def __init__(self, delays: dict[int, float], full: bool = False) -> None:
        self.delays = delays
        self.full = full
        self.closed = asyncio.Event()
        self.answers: asyncio.Queue[ProduceStreamResponse] = asyncio.Queue()

    async def open_stream(self, address: str, method: Any) -> Any:
        return self

    async def write(self, message: ProduceStreamRequest) -> None:
        if self.full:
            await self.closed.wait()
            raise TransportError(TransportStatus.CANCELLED, "node", "the stream is closed on this side")
        number = message.correlation_id
        if number in self.delays:
            answer = ProduceStreamResponse(correlation_id=number)
            asyncio.get_running_loop().call_later(self.delays[number], self.answers.put_nowait, answer)

    async def read(self) -> ProduceStreamResponse:
        return await self.answers.get()

    async def close(self) -> None:
        self.closed.set()


async def opened(peer: _Peer) -> _Stream:
    return await CorrelatedStream.open(peer, "node", wire.PRODUCE_STREAM)  # type: ignore[arg-type]


def numbered() -> Callable[[int], ProduceStreamRequest]:
    return lambda number: ProduceStreamRequest(correlation_id=number)


@pytest.mark.rule("P-4")
@virtual
async def test_a_late_answer_ends_the_stream_at_the_time_of_its_request() -> None:
    peer = _Peer({1: 20.0, 2: 1.0})
    stream = await opened(peer)
    loop = asyncio.get_running_loop()

    async def failed(timeout_s: float) -> float:
        with pytest.raises(TransportError, match="no answer in 5 s") as problem:
            await stream.request(numbered(), timeout_s)
        assert problem.value.status is TransportStatus.DEADLINE_EXCEEDED
        return loop.time()

    slow = asyncio.create_task(failed(30.0))
    await asyncio.sleep(1)
    assert (await stream.request(numbered(), 10.0)).correlation_id == 2
    late = asyncio.create_task(failed(5.0))  # starts later than the others and times out before them
    assert await late == pytest.approx(7.0, abs=0.01)
    assert await slow == pytest.approx(7.0, abs=0.01)
    assert stream.is_lost
    await stream.close()


@pytest.mark.rule("P-4")
@virtual
async def test_answers_in_time_leave_the_stream_open_beyond_the_time_of_each() -> None:
    stream = await opened(_Peer(dict.fromkeys(range(1, 11), 3.0)))
    for number in range(1, 11):
        assert (await stream.request(numbered(), 5.0)).correlation_id == number
    await asyncio.sleep(60)
    assert not stream.is_lost
    await stream.close()


@pytest.mark.rule("P-4")
@virtual
async def test_a_write_that_the_peer_holds_up_ends_in_time_and_so_do_those_behind_it() -> None:
    peer = _Peer({}, full=True)
    stream = await opened(peer)
    problems = await asyncio.gather(*(stream.request(numbered(), 5.0) for _ in range(3)), return_exceptions=True)
    assert [str(problem) for problem in problems] == ["node: DEADLINE_EXCEEDED: no answer in 5 s"] * 3
    assert now_s() == pytest.approx(5.0, abs=0.01)
    assert peer.closed.is_set()
    await stream.close()


@pytest.mark.rule("P-4")
def test_the_owner_is_notified_of_a_late_answer_each_second_until_it_comes() -> None:
    async def story() -> None:
        reported: list[tuple[float, bool]] = []
        peer = _Peer({1: 0.5, 2: 7.2})
        stream = await CorrelatedStream.open(
            peer,  # type: ignore[arg-type]
            "node",
            wire.PRODUCE_STREAM,
            lambda: reported.append((round(now_s(), 1), stream.is_late)),
        )
        await stream.request(numbered(), 30.0, 3.0)
        await asyncio.sleep(0.5)
        late = asyncio.create_task(stream.request(numbered(), 30.0, 3.0))
        await asyncio.sleep(3.1)
        assert stream.is_late
        assert (await late).correlation_id == 2
        assert not stream.is_late
        await asyncio.sleep(60)
        assert reported == [(4.0, True), (5.0, True), (6.0, True), (7.0, True), (8.0, True)]
        assert not stream.is_lost
        await stream.close()


@pytest.mark.rule("P-4", "CL-30")
@virtual
async def test_requests_are_made_in_the_order_of_sending_and_one_whose_caller_went_away_is_not_made() -> None:
    stream = await opened(_Peer(dict.fromkeys(range(1, 5), 1.0)))
    made: list[tuple[str, int]] = []

    def named(name: str) -> Callable[[int], ProduceStreamRequest]:
        def make(number: int) -> ProduceStreamRequest:
            made.append((name, number))
            return ProduceStreamRequest(correlation_id=number)

        return make

    asked = [asyncio.create_task(stream.request(named(name), 5.0)) for name in "abcd"]
    await asyncio.sleep(0)  # all have made their request, but nothing has been written
    asked[1].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == [
        "ProduceStreamResponse",
        "CancelledError",
        "ProduceStreamResponse",
        "ProduceStreamResponse",
    ]
    assert [name for name, _ in made] == ["a", "c", "d"]
    assert sorted(number for _, number in made) == [number for _, number in made]
    await stream.close()


@pytest.mark.rule("P-4")
@virtual
async def test_a_request_that_cannot_be_made_fails_alone() -> None:
    stream = await opened(_Peer({2: 1.0}))

    def broken(number: int) -> ProduceStreamRequest:
        raise ValueError(f"request {number} holds a number that its field cannot")

    with pytest.raises(ValueError, match="request 1 holds"):
        await stream.request(broken, 5.0)
    assert (await stream.request(numbered(), 5.0)).correlation_id == 2
    await stream.close()
    with pytest.raises(TransportError, match="the stream was closed"):
        await stream.request(numbered(), 5.0)


@pytest.mark.rule("P-4", "PL-524")
def test_an_abandoned_stream_fails_what_waits_on_it_and_a_write_that_is_held_up() -> None:
    async def story() -> None:
        peer = _Peer({}, full=True)
        stream = await CorrelatedStream.open(peer, "node", wire.PRODUCE_STREAM, lambda: stream.abandon("moved"))  # type: ignore[arg-type]
        problems = await asyncio.gather(
            *(stream.request(numbered(), 30.0, 2.0) for _ in range(2)), return_exceptions=True
        )
        assert [str(problem) for problem in problems] == ["node: UNAVAILABLE: moved"] * 2
        assert all(isinstance(problem, TransportError) and problem.retriable for problem in problems)
        assert now_s() == pytest.approx(2.0, abs=0.01)
        assert peer.closed.is_set()
        stream.abandon("again")


@pytest.mark.rule("P-4")
def test_an_answer_that_cannot_be_taken_in_leaves_the_others_their_reader() -> None:
    class Clumsy:
        timeout_s = 5.0
        expected_s = 5.0

        def make(self, number: int) -> ProduceStreamRequest:
            return ProduceStreamRequest(correlation_id=number)

        def answered(self, response: ProduceStreamResponse) -> None:
            raise RuntimeError("unforeseen")

        def failed(self, error: Exception) -> None:
            raise AssertionError("the request got a response")

    async def story() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        stream = await opened(_Peer({1: 1.0, 2: 2.0}))
        stream.send(Clumsy())
        assert (await stream.request(numbered(), 5.0)).correlation_id == 2
        assert [str(context["exception"]) for context in reported] == ["unforeseen"]
        await stream.close()

    run(story())


@virtual
async def test_a_signal_is_kept_until_it_is_cleared_and_a_wait_ends_by_itself() -> None:
    loop = asyncio.get_running_loop()
    signal = Signal()
    signal.set()
    await signal.wait(None)
    await signal.wait(5)
    assert loop.time() == 0
    signal.clear()
    await signal.wait(5)
    assert loop.time() == pytest.approx(5)
    loop.call_later(1, signal.set)
    await signal.wait(5)
    assert loop.time() == pytest.approx(6)
    signal.clear()
    await signal.wait(7)  # the timer of the previous wait fires during this one and ends nothing
    assert loop.time() == pytest.approx(13)
    loop.call_later(1, signal.set)
    await signal.wait(100)
    signal.clear()
    await signal.wait(2)  # a timer that is set for later than this wait is moved to it
    assert loop.time() == pytest.approx(16)


@virtual
async def test_a_cancelled_wait_does_not_take_the_signal_from_the_next() -> None:
    signal = Signal()
    first = asyncio.create_task(signal.wait(None))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(signal.wait(None))
    await asyncio.sleep(0.1)
    assert first.cancelled()
    signal.set()
    await asyncio.wait_for(second, 1)
