"""How an administrator changes topics: `World.topics` stays correct even if a response is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kip932.errors import KafkaError
from kip932.rpc.transport import TransportError
from sharegroups import NewTopic
from sharegroups.admin_values import TopicDescription
from sharegroups.aio import Admin
from tests.simulation.history import Administered
from tests.simulation.workload.witness import Witness, error_text

_PAUSE_S = 0.3
#: Without faults one attempt is enough; with them a process may be away for a few seconds.
_TRIES = 40

Errors = dict[str, KafkaError | None]


def admin_of(witness: Witness) -> Admin:
    """Return an admin client with short time-outs."""
    settings = {
        "bootstrap.servers": witness.world.bootstrap(),
        "request.timeout.ms": 1_000,
        "default.api.timeout.ms": 3_000,
    }
    return Admin(settings, transport=witness.world.transport(witness.process))


class Topics:
    """A simulated world's topics, changed through one admin client. Methods retry, within limits, until the outcome is
    known."""

    def __init__(self, witness: Witness, admin: Admin) -> None:
        self._witness = witness
        self._admin = admin
        self._gone: dict[str, None] = {}

    async def create(self, name: str, partitions: int) -> bool:
        """Create a topic and learn its id; return False if that failed."""
        for _ in range(_TRIES):
            asked_ms = self._witness.world.now_ms()
            error = await self._once(lambda: self._admin.create_topics([NewTopic(name, partitions)]))
            found = await self._appear(name) if error in {"", "TOPIC_ALREADY_EXISTS"} else None
            self._saw("CreateTopics", name, found.topic_id.hex() if found else "", error, asked_ms)
            if found is not None:
                return True
            if error:  # it exists under its old id: a fail-over lost the deletion that was seen
                self._gone.clear()
            await asyncio.sleep(_PAUSE_S)
        return False

    async def delete(self, name: str) -> bool:
        """Delete a topic; return False if that failed."""
        topic_id = self._witness.world.topics[name]
        for _ in range(_TRIES):
            asked_ms = self._witness.world.now_ms()
            error = await self._once(lambda: self._admin.delete_topics([name]))
            self._saw("DeleteTopics", name, topic_id, error, asked_ms)
            if error in {"", "UNKNOWN_TOPIC_OR_PARTITION"}:
                self._gone[topic_id] = None
                self._witness.world.topics.pop(name, None)
                return True
            await asyncio.sleep(_PAUSE_S)
        return False

    async def _appear(self, name: str) -> TopicDescription | None:
        """Wait for an existing topic, which a node that is behind may not know yet."""
        for _ in range(_TRIES):
            if (found := await self.learn(name)) is not None:
                return found
            await asyncio.sleep(_PAUSE_S)
        return None

    async def grow(self, name: str, partitions: int) -> None:
        """Add partitions, in one attempt."""
        detail = f"{self._witness.world.topics[name]} {partitions}"
        asked_ms = self._witness.world.now_ms()
        error = await self._once(lambda: self._admin.create_partitions({name: partitions}))
        self._saw("CreatePartitions", name, detail, error, asked_ms)

    async def learn(self, name: str) -> TopicDescription | None:
        """Return the topic as the metadata shows it, and note its id; None if it does not exist.

        A node that is behind may report a topic of the same name that was deleted here; that one counts as not
        existing.
        """
        for _ in range(_TRIES):
            with self._witness.trying("list_topics") as attempt:
                topic = (await self._admin.list_topics([name]))[name]
                topic_id = topic.topic_id.hex()
                if topic.error is None and topic_id not in self._gone:
                    self._witness.world.topics[name] = topic_id
                    return topic
                attempt.error = topic.error.name if topic.error is not None else "UNKNOWN_TOPIC_OR_PARTITION"
            if attempt.error == "UNKNOWN_TOPIC_OR_PARTITION":
                self._witness.world.topics.pop(name, None)
                return None
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _once(self, call: Callable[[], Awaitable[Errors]]) -> str:
        """Return the error of one call for one topic, "" for none."""
        try:
            (error,) = (await call()).values()
        except (KafkaError, TransportError) as failure:
            return error_text(failure)
        return error.name if error is not None else ""

    def _saw(self, call: str, target: str, detail: str, error: str, asked_ms: int) -> None:
        self._witness.saw(Administered, call, target, detail, error, asked_ms)
