"""Makes one round's letters from its stretches: with copies where possible, up to the bytes of a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from partition_leader.dead_letters.core.destination import HOPS_MAX
from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.letter_codec import Letter, Origin, fits, hops_of, letter
from partition_leader.dead_letters.source_codec import SourceRecords
from partition_leader.topic_log.topic_log import TopicLog

ROUND_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Prepared:
    """The letters of one round. `taken`: their stretches. `left`: stretches beyond the bytes of a round. `too_large`:
    those that do not fit even without a copy. `circling`: those that too many letters in a row led to. `without_copy`:
    offsets whose letter lacks the copy that the group asks for."""

    letters: list[Letter] = field(default_factory=list)
    taken: list[Stretch] = field(default_factory=list)
    left: list[Stretch] = field(default_factory=list)
    too_large: list[Stretch] = field(default_factory=list)
    circling: list[Stretch] = field(default_factory=list)
    without_copy: list[int] = field(default_factory=list)


class Preparing:
    """Makes letters of one share-partition for one topic.

    `log`: where source records are read; unused when neither copies nor hops are needed. `copies`: whether letters get
    copies. `counts_hops`: whether the source records may be letters themselves.
    """

    def __init__(
        self,
        origin: Origin,
        log: TopicLog | None,
        max_message_bytes: int,
        now_wall_ms: int,
        *,
        copies: bool = True,
        counts_hops: bool = False,
    ) -> None:
        self._origin = origin
        self._log = log if copies or counts_hops else None
        self._copies = copies
        self._counts_hops = counts_hops
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
                if found is None:
                    _extend(prepared.circling, stretch, offset)
                elif fits(found, self._max):
                    prepared.letters.append(found)
                    _extend(prepared.taken, stretch, offset)
                    size += found.size
                else:
                    _extend(prepared.too_large, stretch, offset)
        return prepared

    async def _letter(
        self, stretch: Stretch, offset: int, sources: SourceRecords | None, prepared: Prepared
    ) -> Letter | None:
        """Return the letter of an offset; None when too many letters in a row led to it."""
        count, cause, now_ms = stretch.delivery_count, stretch.cause, self._now_ms
        source, hops = None, 1
        if sources is not None:
            source = None if stretch.bare and not self._counts_hops else await sources.at(offset)
            hops = 1 + (hops_of(source) if self._counts_hops else 0)
            if hops > HOPS_MAX:
                return None
        if self._copies:
            if source is not None and not stretch.bare:
                copy = letter(self._origin, offset, count, cause, now_ms=now_ms, source=source, hops=hops)
                if fits(copy, self._max):
                    return copy
            prepared.without_copy.append(offset)
        return letter(self._origin, offset, count, cause, now_ms=now_ms, hops=hops)


def _extend(stretches: list[Stretch], stretch: Stretch, offset: int) -> None:
    """Add one offset of `stretch`; it joins its neighbour."""
    if stretches and stretches[-1].last == offset - 1 and stretches[-1].first >= stretch.first:
        stretches[-1] = stretch.cut(stretches[-1].first, offset)
    else:
        stretches.append(stretch.cut(offset, offset))
