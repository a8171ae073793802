"""One pipeline of the in-memory store: its way to the server, through it, and back. Runs in callbacks, without a task.

It outlives its client: what was sent is executed, unless the server forgot the connection before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from shard_runtime.record_log.memory.server import Session
from shard_runtime.record_log.redis.connection import Command, Reply

#: Called with how many commands of a pipeline have arrived.
Arrived = Callable[[int], None]


class Road(Protocol):
    """The way of a client's pipelines to the store and back: it may take time, or lose them."""

    def sent(self, client: str, commands: Sequence[Command], on: Arrived, lost: Callable[[], None]) -> None:
        """A pipeline has left its client. Calls `lost`; or `on` with how many of its commands have arrived so far, once
        or several times, in the end with all."""
        ...

    def answered(
        self, client: str, commands: Sequence[Command], on: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        """Its replies have left the store. Calls `on` or `lost`."""
        ...


class AtOnce:
    """A road without length; what arrives arrives in the loop's next round."""

    def sent(self, _client: str, commands: Sequence[Command], on: Arrived, _lost: object) -> None:
        """In the next round."""
        asyncio.get_running_loop().call_soon(on, len(commands))

    def answered(self, _client: str, _commands: Sequence[Command], on: Callable[[], None], _lost: object) -> None:
        """Now."""
        on()


class Pipeline:
    """One pipeline; `answer` gets its replies, or the error that a bug of the twin raised."""

    __slots__ = ("_answer", "_commands", "_here", "_replies", "_road", "_session", "_waits")

    def __init__(
        self, road: Road, session: Session, commands: Sequence[Command], answer: asyncio.Future[list[Reply]]
    ) -> None:
        self._road = road
        self._session = session
        self._commands = commands
        self._replies: list[Reply] = []
        self._answer = answer
        #: How many commands have arrived.
        self._here = 0
        self._waits = False
        road.sent(session.name, commands, self._execute, self._lost)

    def _execute(self, here: int) -> None:
        self._here = here
        if not self._waits:
            self._go_on()

    def _go_on(self) -> None:
        """Execute what is here; a WAIT goes on by itself."""
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
            self._road.answered(session.name, commands, self._arrived, self._lost)

    def _waited(self, reply: Reply) -> None:
        self._waits = False
        self._replies.append(reply)
        self._go_on()

    def _arrived(self) -> None:
        if not self._answer.done():
            self._answer.set_result(self._replies)

    def _lost(self) -> None:
        self._session.end(dead=False)
