"""One pipeline of the in-memory store: sent to the server, executed, answered. Runs in callbacks, without a task.

A pipeline that was sent is executed even when its client has disconnected, unless the server dropped the connection
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from shard_runtime.record_log.memory.server import Session
from shard_runtime.record_log.redis.connection import Command, Reply

#: Called with the number of a pipeline's commands that have arrived so far.
Arrived = Callable[[int], None]


class StoreNetwork(Protocol):
    """The network between a client and the store: it may delay a pipeline or its replies, or lose them."""

    def sent(self, client: str, commands: Sequence[Command], on: Arrived, lost: Callable[[], None]) -> None:
        """Carry a pipeline to the store. Calls `lost` once; or calls `on` with the number of commands that have arrived
        so far, one or more times, the last time with all of them."""
        ...

    def answered(
        self, client: str, commands: Sequence[Command], on: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        """Carry a pipeline's replies to the client. Calls `on` when they arrive, or `lost`."""
        ...


class ImmediateNetwork:
    """A network without delay or loss."""

    def sent(self, _client: str, commands: Sequence[Command], on: Arrived, _lost: object) -> None:
        """Deliver the commands in the event loop's next iteration."""
        asyncio.get_running_loop().call_soon(on, len(commands))

    def answered(self, _client: str, _commands: Sequence[Command], on: Callable[[], None], _lost: object) -> None:
        """Deliver the replies at once."""
        on()


class Pipeline:
    """One pipeline; `answer` gets its replies, or the exception of a bug in the twin."""

    __slots__ = ("_answer", "_commands", "_here", "_network", "_replies", "_session", "_waits")

    def __init__(
        self, network: StoreNetwork, session: Session, commands: Sequence[Command], answer: asyncio.Future[list[Reply]]
    ) -> None:
        self._network = network
        self._session = session
        self._commands = commands
        self._replies: list[Reply] = []
        self._answer = answer
        #: The number of commands that have arrived.
        self._here = 0
        self._waits = False
        network.sent(session.name, commands, self._execute, self._lost)

    def _execute(self, here: int) -> None:
        self._here = here
        if not self._waits:
            self._go_on()

    def _go_on(self) -> None:
        """Execute the commands that have arrived. A WAIT calls back here when it is over."""
        session, commands, replies = self._session, self._commands, self._replies
        try:
            for command in commands[len(replies) : self._here]:
                if session.dead:
                    return
                if command[0] == "WAIT":
                    self._waits = True
                    session.server.wait(session, int(command[1]), int(command[2]), self._waited)
                    return
                replies.append(session.server.execute(session, command))
        except Exception as error:
            if not self._answer.done():
                self._answer.set_exception(error)
            return
        if len(replies) == len(commands):
            self._network.answered(session.name, commands, self._arrived, self._lost)

    def _waited(self, reply: Reply) -> None:
        self._waits = False
        self._replies.append(reply)
        self._go_on()

    def _arrived(self) -> None:
        if not self._answer.done():
            self._answer.set_result(self._replies)

    def _lost(self) -> None:
        self._session.end(dead=False)
