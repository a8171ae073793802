"""One round's letters, made from its stretches: with copies where they can be, as many as a round may have bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.letter_codec import Letter, Origin, fits, letter
from partition_leader.dead_letters.source_codec import SourceRecords
from partition_leader.topic_log.topic_log import TopicLog

ROUND_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Prepared:
    """`taken`: the stretches of `letters`. `left`: beyond the bytes of a round. `too_large`: even without a copy.
    `without_copy`: offsets whose letter lacks the copy that the group asks for."""

    letters: list[Letter] = field(default_factory=list)
    taken: list[Stretch] = field(default_factory=list)
    left: list[Stretch] = field(default_factory=list)
    too_large: list[Stretch] = field(default_factory=list)
    without_copy: list[int] = field(default_factory=list)


class Preparing:
    """How letters of one share-partition are made for one topic. `log`: where copies are read; None for no copies."""

    def __init__(self, origin: Origin, log: TopicLog | None, max_message_bytes: int, now_wall_ms: int) -> None:
        self._origin = origin
        self._log = log
        self._max = max_message_bytes
        self._now_ms = now_wall_ms

    async def prepare(self, stretches: list[Stretch]) -> Prepared:
        """Make the letters of a round. Raises KafkaError, LogError when the source cannot be read at present."""
        sources = None if self._log is None else SourceRecords(self._log, stretches[-1].last)
        prepared, size = Prepared(), 0
        for stretch in stretches:
            for offset in range(stretch.first, stretch.last + 1):
                if size >= ROUND_BYTES:
                    prepared.left.append(stretch.cut(offset, stretch.last))
                    break
                found = await self._letter(stretch, offset, sources, prepared)
                if fits(found, self._max):
                    prepared.letters.append(found)
                    _extend(prepared.taken, stretch, offset)
                    size += found.size
                else:
                    _extend(prepared.too_large, stretch, offset)
        return prepared

    async def _letter(self, stretch: Stretch, offset: int, sources: SourceRecords | None, prepared: Prepared) -> Letter:
        count, cause, now_ms = stretch.delivery_count, stretch.cause, self._now_ms
        if sources is not None:
            source = None if stretch.bare else await sources.at(offset)
            if source is not None:
                copy = letter(self._origin, offset, count, cause, now_ms=now_ms, source=source)
                if fits(copy, self._max):
                    return copy
            prepared.without_copy.append(offset)
        return letter(self._origin, offset, count, cause, now_ms=now_ms)


def _extend(stretches: list[Stretch], stretch: Stretch, offset: int) -> None:
    """Add one offset of `stretch`; it joins its neighbour."""
    if stretches and stretches[-1].last == offset - 1 and stretches[-1].first >= stretch.first:
        stretches[-1] = stretch.cut(stretches[-1].first, offset)
    else:
        stretches.append(stretch.cut(offset, offset))
