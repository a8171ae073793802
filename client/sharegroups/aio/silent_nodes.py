"""What the client does while a node is silent: a process that is stopped answers nothing and breaks no connection.

Nobody is given up for being slow alone. Past the time that an answer takes when all is well, the client asks other
nodes who is in charge now; a request is abandoned only when somebody else is, or when its own time is over. What
becomes of it is then as unknown as after the loss of a connection (CL-14, CL-33, CM-43).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from kip932.errors import KafkaError, NetworkError
from kip932.rpc.transport import TransportError, TransportStatus

T = TypeVar("T")

#: How long past its expected time an answer may be, s: a silent owner has lost its lease by then, and another may own.
SILENCE_S: Final = 3.0
#: How long one node is waited for alone before the next is asked as well, s; for questions that any node answers.
HEDGE_S: Final = 1.0
#: Between two looks while the silence lasts, s: retry.backoff.max.ms as it comes.
AGAIN_S: Final = 1.0


async def while_in_charge(
    call: Coroutine[Any, Any, T], address: str, who: Callable[[], Coroutine[Any, Any, str]], what: str
) -> T:
    """Wait for `call` to `address`, but only as long as `who()` answers that address.

    Raises what `call` raises; TransportError (UNAVAILABLE) when another is in charge of `what` before the answer came.
    """
    task = asyncio.create_task(call)
    try:
        pause_s = SILENCE_S
        while not await _done(task, pause_s):
            look = asyncio.create_task(who())
            try:
                await asyncio.wait({task, look}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and _moved(look, address):
                    text = f"no answer, and {what} is at {look.result()} now"
                    raise TransportError(TransportStatus.UNAVAILABLE, address, text)
            finally:
                await _end(look)
            pause_s = AGAIN_S
        return task.result()
    finally:
        await _end(task)


async def first_answer(
    addresses: Iterable[str], call: Callable[[str], Coroutine[Any, Any, T]], silent: set[str], what: str
) -> T:
    """The first answer of any node: the next one is asked when one fails, and beside one that is silent.

    Only for questions that may be asked twice. `silent` holds nodes that did not answer in time; they come last, and
    leave it when they answer. Raises NetworkError when all failed; TransportError after which no retry helps.
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


def _moved(look: asyncio.Task[str], address: str) -> bool:
    try:
        return look.result() != address
    except (KafkaError, TransportError):
        return False  # nobody could say; it is asked again


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel it unless it is done, and let nobody miss its error."""
    if not task.done():
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
