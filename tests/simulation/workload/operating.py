"""An operator of transactions: lists them and aborts some open ones (CM-157, CM-158)."""

from __future__ import annotations

from random import Random

from tests.simulation.transaction_events import TransactionAborted
from tests.simulation.workload.cast import Cast
from tests.simulation.workload.topics import admin_of
from tests.simulation.workload.witness import Witness


class Operator:
    """Aborts open transactions, hanging or not; a producer that commits at the same time succeeds or is fenced."""

    def __init__(self, cast: Cast, rng: Random, name: str) -> None:
        self.name = name
        self._cast = cast
        self._rng = rng
        self._witness = Witness(cast.world, name)

    async def work(self) -> None:
        """From time to time list transactions, until the work is over."""
        if not await self._cast.topic(next(iter(self._cast.topics))):
            return
        async with admin_of(self._witness) as admin:
            while await self._cast.pause(self._rng.uniform(0.5, 4)):
                with self._witness.trying("Admin.abort_transaction"):
                    listed = await admin.list_transactions(["Ongoing"])
                    if listed:
                        name = self._rng.choice(listed).transactional_id
                        await admin.abort_transaction(name)
                        self._witness.saw(TransactionAborted, name)

    async def drain(self) -> None:
        """Do nothing: open transactions end without this."""
