"""Handles silent nodes: a stopped process does not answer, but its connections remain open.

The client does not abandon a request just because its node is slow. When the response is late, the client asks other
nodes which node is in charge now. It abandons the request if that is another node, or if the request times out. The
request's outcome is then unknown, as after the loss of a connection (CL-14, CL-33, CM-43).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from kip932.errors import KafkaError, NetworkError
from kip932.rpc.transport import TransportError, TransportStatus

T = TypeVar("T")

#: A response counts as late this long after its expected time, in seconds. By then a silent owner has lost its lease,
#: and another node may be the owner.
SILENCE_S: Final = 3.0
#: For requests that any node can answer: how long the client waits for one node before it also asks the next, in
#: seconds.
HEDGE_S: Final = 1.0
#: The interval between look-ups while the node stays silent, in seconds; the same as the default of
#: retry.backoff.max.ms.
AGAIN_S: Final = 1.0


async def while_in_charge(
    call: Coroutine[Any, Any, T], address: str, who: Callable[[], Coroutine[Any, Any, str]], what: str
) -> T:
    """Wait for `call` to `address`, but only as long as `who()` returns that address.

    Raises what `call` raises, and TransportError (UNAVAILABLE) if another node is in charge of `what` before the
    response arrives.
    """
    task = asyncio.create_task(call)
    try:
        pause_s = SILENCE_S
        while not await _done(task, pause_s):
            lookup = asyncio.create_task(who())
            try:
                await asyncio.wait({task, lookup}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and _moved(lookup, address):
                    text = f"no answer, and {what} is at {lookup.result()} now"
                    raise TransportError(TransportStatus.UNAVAILABLE, address, text)
            finally:
                await _end(lookup)
            pause_s = AGAIN_S
        return task.result()
    finally:
        await _end(task)


async def first_answer(
    addresses: Iterable[str], call: Callable[[str], Coroutine[Any, Any, T]], silent: set[str], what: str
) -> T:
    """Return the first response from any node. The next node is called if one fails, and also if one is silent.

    Only for requests that may be sent twice. `silent` is the set of nodes that did not answer in time: it is updated
    here, and its nodes are called last. Raises NetworkError if all nodes failed, TransportError if a retry cannot help.
    """
    left = deque(sorted(addresses, key=silent.__contains__))
    asked: dict[asyncio.Task[T], str] = {}
    problems: list[str] = []
    try:
        while left or asked:
            if left:
                address = left.popleft()
                asked[asyncio.create_task(call(address))] = address
            done, late = await asyncio.wait(
                asked, timeout=HEDGE_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                silent.update(asked[task] for task in late)
            for task in done:
                address = asked.pop(task)
                try:
                    answer = task.result()
                except TransportError as error:
                    if not error.retriable:
                        raise
                    problems.append(str(error))
                else:
                    silent.discard(address)
                    return answer
    finally:
        for task in asked:
            await _end(task)
    raise NetworkError(f"no node answered {what}: {'; '.join(problems)}")


async def _done(task: asyncio.Task[T], timeout_s: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    return bool(done)


def _moved(lookup: asyncio.Task[str], address: str) -> bool:
    try:
        return lookup.result() != address
    except (KafkaError, TransportError):
        return False  # the look-up failed; it is retried


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel the task unless it is done, and retrieve its exception, so that asyncio does not log it."""
    if not task.done():
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
