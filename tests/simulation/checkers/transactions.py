"""CM-44, INV-2, INV-19: readers see all records of a transaction or none, and none if it was aborted; no transaction
stays open.

The outcome of each record is taken from the logs themselves: from the store's entries, not from the services.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import doomed, offsets
from tests.simulation.final import Final as FinalState
from tests.simulation.history import Acquired, Administered, Delivered, History
from tests.simulation.transaction_events import TransactionEnded
from tests.simulation.workload.cast import ISOLATION_LEVEL
from tests.simulation.workload.transacting import ABORTED, COMMITTED

_COMMITTED_ONLY: Final = f"{ISOLATION_LEVEL}=read_committed"
#: The time, in ms, within which every node reads a change to a group's settings from the metadata log (PL-801: a fetch
#: uses what its node has read).
_SPREADS_MS: Final = 1_000


class Transactions:
    """Checks all partitions and leaders; hidden records are hidden only from groups that use read_committed."""

    rules: tuple[str, ...] = ("CM-44", "INV-2", "INV-19")

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check each transaction's records in the logs and those that groups received, and that no transaction was left
        open."""
        yield from self._atomic(history, final)
        yield from self._hidden(history, final)
        for partition, values in sorted(final.open.items()):
            yield Violation("INV-19", f"a transaction is still open in {partition}: it holds {sorted(values)}")

    @staticmethod
    def _atomic(history: History, final: FinalState) -> Iterator[Violation]:
        gone = doomed(history)
        kept = {value for (topic, _), found in final.values.items() if topic not in gone for value in found.values()}
        hidden = {value for found in final.hidden.values() for value in found.values()}
        for event in history.of(TransactionEnded):
            seen, unseen = kept.intersection(event.values), hidden.intersection(event.values)
            if seen and unseen:
                yield Violation(
                    "CM-44",
                    f"of a transaction of {event.name}, {sorted(seen)} are committed and {sorted(unseen)} aborted",
                    (event,),
                )
            if event.outcome == COMMITTED and unseen:
                yield Violation("CM-44", f"{event.name} learned that {sorted(unseen)} are committed", (event,))
            if event.outcome == ABORTED and seen:
                yield Violation("CM-44", f"{event.name} learned that {sorted(seen)} are aborted", (event,))

    @staticmethod
    def _hidden(history: History, final: FinalState) -> Iterator[Violation]:
        aborted = {value for found in final.hidden.values() for value in found.values()}
        # The time since which each group has used read_committed, as known to every node that is not cut off.
        known_ms: dict[str, int] = {}
        for each in history.of(Administered):
            if each.detail == _COMMITTED_ONLY and not each.error:
                known_ms.setdefault(each.target, each.at_ms + _SPREADS_MS)
        early: set[tuple[str, bytes]] = set()
        for event in history.of(Acquired, Delivered):
            if isinstance(event, Delivered):
                if event.value in aborted and event.group_id in known_ms and (event.group_id, event.value) not in early:
                    yield Violation(
                        "INV-2", f"{event.member_id} was given {event.value!r} of an aborted transaction", (event,)
                    )
                continue
            group_id = event.share.group_id
            if group_id not in known_ms:
                continue
            found = final.hidden.get((event.share.topic_id, event.share.partition), {})
            for offset in offsets(event.first_offset, event.last_offset) if found else ():
                if offset in found and event.at_ms < known_ms[group_id]:
                    early.add((group_id, found[offset]))
                elif offset in found:
                    yield Violation(
                        "INV-2",
                        f"{event.member_id} acquired {event.share} {offset}, {found[offset]!r} of an aborted "
                        "transaction",
                        (event,),
                    )
