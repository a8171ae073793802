"""INV-17 and the conservation of counts: what is produced is finished or left, and the lag says how much is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import drained, finished_in, partition_of, terminal_count
from tests.simulation.final import Final, LogEnd
from tests.simulation.history import History, LagSeen, Share, StateSeen

_UNKNOWN = -1


class Lag:
    """A lag is never negative, and 0 for what was drained."""

    rules: tuple[str, ...] = ("INV-17",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """What clients were told, and what it must be at the end."""
        for event in history.of(LagSeen):
            if event.lag < _UNKNOWN or (event.start_offset < 0 and event.lag > 0):
                yield Violation("INV-17", f"{event.share} has lag {event.lag}, start {event.start_offset}", (event,))
        emptied = drained(history)
        for share, state in final.served.items():
            log = final.logs.get(partition_of(share))
            if log is not None and state.start_offset >= 0:
                empty = partition_of(share) in emptied.get(share.group_id, ())
                yield from self._at_rest(state, log, final.values.get(partition_of(share), {}), empty)

    @staticmethod
    def _at_rest(state: StateSeen, log: LogEnd, values: Mapping[int, bytes], empty: bool) -> Iterator[Violation]:
        """lag = end - start - finished; finished is counted anew. Offsets without a record are no lag, nor are deleted
        ones (CM-105), whose batch lies in the store until all of it is deleted."""
        lag = log.high_watermark - state.start_offset - max(state.delivery_complete_count, 0)
        finished = terminal_count(state.start_offset, state.batches)
        if state.delivery_complete_count >= 0 and state.delivery_complete_count != finished:
            yield Violation(
                "INV-17",
                f"{state.share} counts {state.delivery_complete_count} finished offsets behind its start; its batches "
                f"show {finished}",
                (state,),
            )
        without_record = (
            log.high_watermark
            - state.start_offset
            - sum(at >= max(state.start_offset, log.log_start_offset) for at in values)
        )
        if lag < 0 or (empty and lag > without_record):
            yield Violation(
                "INV-17",
                f"{state.share} rests with lag {lag}: start {state.start_offset}, end {log.high_watermark}",
                (state,),
            )


class Drained:
    """INV-1, INV-19: what was emptied without faults is finished to the last record, and the start offset says so."""

    rules: tuple[str, ...] = ("INV-1", "INV-9", "INV-19")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Every partition that a group with a live member subscribed to while it was emptied."""
        if not final.served:
            return
        for group_id, partitions in sorted(drained(history).items()):
            for topic_id, partition in sorted(partitions):
                log = final.logs.get((topic_id, partition))
                if log is not None:
                    share = Share(group_id, topic_id, partition)
                    yield from self._finished(share, final.served.get(share), log, final)

    @staticmethod
    def _finished(share: Share, state: StateSeen | None, log: LogEnd, final: Final) -> Iterator[Violation]:
        if state is None:
            yield Violation("INV-19", f"{share} has no state, though members of its group subscribe to it")
            return
        values = final.values.get(partition_of(share), {})
        if state.start_offset == log.high_watermark and not state.batches:
            return
        done = set(finished_in(state.batches))
        left = [
            offset
            for offset in sorted(values)
            if offset >= max(state.start_offset, log.log_start_offset) and offset not in done
        ]
        if left:
            yield Violation(
                "INV-1",
                f"{share} offset {left[0]} was never finished ({len(left)} records were not): start "
                f"{state.start_offset}, end {log.high_watermark}",
                (state,),
            )
        elif state.start_offset >= log.log_start_offset and (
            state.start_offset >= log.high_watermark or state.start_offset in values
        ):
            # Else it rests at a hole, of which a lag says 0 (CM-105), or below the log's start, whose moves are not
            # written for themselves (PL-701): whoever fetches next moves it on.
            yield Violation(
                "INV-9",
                f"{share} rests at {state.start_offset} with {len(state.batches)} batches, though all up to "
                f"{log.high_watermark} is finished",
                (state,),
            )
