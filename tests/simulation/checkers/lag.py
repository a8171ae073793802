"""INV-17 and the conservation of counts: each produced record is finished or remains, and the lag is the number that
remain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import drained, finished_in, partition_of, terminal_count
from tests.simulation.final import Final, LogEnd
from tests.simulation.history import History, LagSeen, Share, StateSeen

_UNKNOWN = -1


class Lag:
    """A lag is never negative, and it is 0 for a drained partition."""

    rules: tuple[str, ...] = ("INV-17",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the lags that clients received, and the lag at the end."""
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
        """Check lag = end - start - finished, with `finished` counted independently. Offsets without a record do not
        count, nor do deleted ones (CM-105), whose batch stays in the store until all of it is deleted."""
        lag = log.high_watermark - state.start_offset - max(state.delivery_complete_count, 0)
        finished = terminal_count(state.start_offset, state.batches)
        if state.delivery_complete_count >= 0 and state.delivery_complete_count != finished:
            yield Violation(
                "INV-17",
                f"{state.share} counts {state.delivery_complete_count} finished offsets after its start; its batches "
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
    """INV-1, INV-19: in a partition drained without faults every record is finished, and the start offset shows it."""

    rules: tuple[str, ...] = ("INV-1", "INV-9", "INV-19")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every partition that a group with a live member subscribed to during the drain."""
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
            # In the other cases the start offset is at a hole, which adds nothing to the lag (CM-105), or below the
            # log's start, whose moves are not persisted on their own (PL-701); the next fetch advances it.
            yield Violation(
                "INV-9",
                f"{share} rests at {state.start_offset} with {len(state.batches)} batches, though all up to "
                f"{log.high_watermark} is finished",
                (state,),
            )
