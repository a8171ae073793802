"""Streams, plans and pages of one kind of record: the reader's interface (PM-1a). It finds what was lost (PM-11)."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from share_metrics.reader.decoding import RawEntry, decode_page, gap_row, to_batch
from share_metrics.reader.entries import indexed_entry, stored_entry
from share_metrics.reader.offsets import NO_STREAM, EntryId, Gap, Position, Range, Tip, entry_id
from share_metrics.reader.planning import TO_THE_TIP, Goal, StreamPlan, plan_stream, share_out
from share_metrics.reader.schemas import MALFORMED, Kind
from share_metrics.reader.scripts import INDEX, TIP, WALK
from share_metrics.reader.store import Store
from share_metrics.reader.streams import streams_of

_WALK_MAX: Final = 4_096
_INDEX_PAGE_MAX: Final = 64


class DataLossError(Exception):
    """Entries were lost before they were read, or an entry is not a record, and the options demand a failure."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How pages are read. `page_count`: the entries per XRANGE, and the number of rows at which a batch ends.

    `light`: share-state rows have no state batches, which are most of their bytes (PM-78).
    """

    page_count: int = 5_000
    fail_on_data_loss: bool = False
    fail_on_bad_records: bool = False
    light: bool = False


class HasId(Protocol):
    """The part of an entry that counting needs."""

    @property
    def id(self) -> EntryId:
        """The entry's id."""
        ...


class RangeCount:
    """Counts the entries of one range as its pages arrive, and finds the gaps if some are missing (PM-11). Pure.

    Call `take` for each page, then `end`. With `consecutive` ids, a gap ends at the first entry after the missing ones,
    so that its row comes before the rows that follow it. Otherwise the place of a loss is unknown, and the gap ends
    where the range ends.
    """

    def __init__(self, piece: Range, *, consecutive: bool) -> None:
        self._piece = piece
        self._consecutive = consecutive
        self._left = piece.entries
        self._last = piece.after
        self._next = EntryId(piece.through.epoch, piece.through.seq - piece.entries + 1)

    def take(self, page: Sequence[HasId]) -> list[Gap]:
        """The gaps before and within a page, which has at least one entry."""
        self._left -= len(page)
        if not self._consecutive:
            return []
        whole = page[0].id == self._next and page[-1].id == _plus(self._next, len(page) - 1)
        gaps = [] if whole else self._holes(page)
        self._last = page[-1].id
        self._next = _plus(self._last, 1)
        return gaps

    def end(self) -> list[Gap]:
        """The gap of the entries that are missing at the end, if any. More entries than planned mean a lost tail."""
        if not self._left:
            return []
        reason = "missing" if self._left > 0 else "tail"
        return [Gap(self._piece.stream, self._last, self._piece.through, abs(self._left), reason)]

    def _holes(self, page: Sequence[HasId]) -> list[Gap]:
        gaps = []
        last, expected = self._last, self._next
        for one in page:
            if one.id.epoch == expected.epoch and one.id.seq > expected.seq:
                lost = one.id.seq - expected.seq
                gaps.append(Gap(self._piece.stream, last, one.id, lost, "missing"))
                self._left -= lost
            last, expected = one.id, _plus(one.id, 1)
        return gaps


def _plus(at: EntryId, count: int) -> EntryId:
    return EntryId(at.epoch, at.seq + count)


class Reader:
    """Reads one kind of record from a store. It holds no position: callers keep offsets (PM-8).

    If the store reads from replicas, only pages come from them. Plans always come from the primary: two replicas may
    differ, and with a plan from one of them the other would seem to have lost entries.
    """

    def __init__(self, store: Store, kind: Kind, options: ReadOptions | None = None) -> None:
        self._store = store
        self._kind = kind
        self._options = options or ReadOptions()
        if self._options.light and kind is not Kind.SHARE_STATE:
            raise ValueError(f"only share_state can be read light, not {kind}: nothing else has state batches")

    @property
    def kind(self) -> Kind:
        """The kind of its streams."""
        return self._kind

    def streams(self, shards: int | None = None) -> list[str]:
        """All streams of the kind, including those that do not exist yet."""
        return streams_of(self._store, self._kind, shards)

    def tips(self, streams: Sequence[str]) -> dict[str, Tip | None]:
        """The tip of each stream, in one round trip per node; None for a stream that does not exist (PM-8)."""
        replies = self._store.primary.pipeline([(stream, ("EVAL_RO", TIP, 1, stream)) for stream in streams])
        return {
            stream: Tip(entry_id(reply[0]), reply[1], reply[2], entry_id(reply[3])) if reply else None
            for stream, reply in zip(streams, replies, strict=True)
        }

    def position(self, stream: str, at: EntryId, tip: Tip) -> Position:
        """The position after the entry `at` of a stream, with its count derived from the store's own count."""
        after = sum(piece.entries for piece in self.runs(stream, at, tip.last, None, tip.last)) if at < tip.last else 0
        return Position(at, tip.added - after)

    def plan(
        self,
        starts: Mapping[str, Position],
        tips: Mapping[str, Tip | None],
        goals: Mapping[str, Goal] | None = None,
        limit: int | None = None,
    ) -> dict[str, StreamPlan]:
        """A plan for every stream of `tips`; a stream without a start is read from its earliest entry (PM-8).

        With a `limit` all plans together hold at most that many entries, spread by lag (PM-9).
        """
        begins = {stream: starts.get(stream) or (tip.earliest if tip else Position(EntryId(0, 0), 0))
                  for stream, tip in tips.items()}  # fmt: skip
        shares: Mapping[str, int | None] = dict.fromkeys(tips)
        if limit is not None:
            lags = {stream: lag(begins[stream], tip) for stream, tip in tips.items()}
            shares = dict.fromkeys(tips, 0) | share_out(lags, limit)
        return {
            stream: plan_stream(
                stream,
                begins[stream],
                tip,
                _StreamQueries(self, (tip or NO_STREAM).last),
                goal=(goals or {}).get(stream, TO_THE_TIP),
                limit=shares[stream],
            )
            for stream, tip in tips.items()
        }

    def read(
        self, ranges: Iterable[Range], gaps: Iterable[Gap] = (), *, next_reports_tails: bool = False
    ) -> Iterator[Any]:
        """`pyarrow.RecordBatch`es: a row for each gap, then one for each entry, ranges in order (PM-11).

        `next_reports_tails`: the plan that starts where these ranges end will report a lost tail, so it is not reported
        here. Raises DataLossError at the first gap or malformed entry if the options demand it.
        """
        yield from self._reported(list(gaps))
        rows: list[RawEntry] = []
        for piece in ranges:
            count = RangeCount(piece, consecutive=self._kind is not Kind.LOG_META)
            for page in self._pages(piece):
                yield from self._reported(count.take(page))
                rows += page
                if len(rows) >= self._options.page_count:
                    yield self._batch(rows)
                    rows = []
            short = count.end()
            if not (short and next_reports_tails and self._lost_tail(piece)):
                yield from self._reported(short)
        if rows:
            yield self._batch(rows)

    def runs(
        self, stream: str, after: EntryId, through: EntryId, limit: int | None, last: EntryId | None = None
    ) -> Iterator[Range]:
        """Ranges of the first `limit` entries in (`after`, `through`]; see `planning.StreamQueries`.

        `last`: the id of the stream's last entry, if known. `through` need not be the id of an existing entry, unless
        it equals `last`.
        """
        if limit is not None and limit <= 0:
            return iter(())
        if self._kind is Kind.LOG_META:
            return self._walked(stream, after, through, limit)
        return self._consecutive(stream, after, through, limit, last)

    def _consecutive(
        self, stream: str, after: EntryId, through: EntryId, limit: int | None, tip: EntryId | None
    ) -> Iterator[Range]:
        """One range per epoch: sequence numbers have no gaps within an epoch (SR-7), so ends are computed (PM-9)."""
        while after < through and (limit is None or limit > 0):
            walked = self._walk(stream, after, through, 1)
            if walked is None:
                return
            first = walked[0]
            if first.epoch != through.epoch:
                last = self._last_of(stream, f"({first.epoch + 1}-0", first)
            else:
                last = through if through == tip else self._last_of(stream, str(through), first)
            count = last.seq - first.seq + 1
            if limit is not None:
                count = min(count, limit)
                limit -= count
            end = EntryId(first.epoch, first.seq + count - 1)
            yield Range(stream, first.before, end, count)
            if first.epoch == through.epoch:
                return
            after = end

    def _walked(self, stream: str, after: EntryId, through: EntryId, limit: int | None) -> Iterator[Range]:
        """Ranges of a topic log. Its ids are not consecutive (CM-40), so the store counts; it transfers no payload."""
        while after < through and (limit is None or limit > 0):
            asked = _WALK_MAX if limit is None else min(limit, _WALK_MAX)
            walked = self._walk(stream, after, through, asked)
            if walked is None:
                return
            first, last, count = walked
            yield Range(stream, first.before, last, count)
            limit = None if limit is None else limit - count
            after = last

    def _walk(self, stream: str, after: EntryId, through: EntryId, count: int) -> tuple[EntryId, EntryId, int] | None:
        reply = self._store.primary.call(stream, "EVAL_RO", WALK, 1, stream, f"({after}", str(through), count)
        return (entry_id(reply[0]), entry_id(reply[1]), reply[2]) if reply else None

    def _last_of(self, stream: str, through: str, first: EntryId) -> EntryId:
        """The last entry up to an id; `first` if all entries have been trimmed since."""
        reply = self._store.primary.call(stream, "XREVRANGE", stream, through, str(first), "COUNT", 1)
        return entry_id(reply[0][0]) if reply else first

    def _pages(self, piece: Range) -> Iterator[list[RawEntry]]:
        """Pages of a range; entries that a replica does not have yet come from the primary."""
        store, after, through = self._store, piece.after, str(piece.through)
        index = self._kind is Kind.LOG_META
        count = min(self._options.page_count, _INDEX_PAGE_MAX) if index else self._options.page_count
        while after < piece.through:
            words = ("EVAL_RO", INDEX, 1, piece.stream) if index else ("XRANGE", piece.stream)
            tail = (f"({after}", through, count) if index else (f"({after}", through, "COUNT", count)
            with collector_paused():
                reply = store.call(piece.stream, *words, *tail)
                page = [indexed_entry(piece.stream, raw) if index else stored_entry(piece.stream, raw) for raw in reply]
            if page:
                yield page
                after = page[-1].id
            if len(page) < count:
                if store is store.primary:
                    return
                store = store.primary

    def _lost_tail(self, piece: Range) -> bool:
        """Return whether the store lost the end of a range. It was not trimmed if earlier entries are still stored.

        After a loss only a new owner writes, with a new epoch (SR-4).
        """
        tip = self.tips([piece.stream])[piece.stream]
        if tip is None or tip.last < piece.through:
            return True
        held = tip.length > 0 and tip.first <= piece.through
        return self._kind is not Kind.LOG_META and held and tip.last.epoch > piece.through.epoch

    def _batch(self, rows: Sequence[RawEntry]) -> Any:
        with collector_paused():
            batch = decode_page(self._kind, rows, light=self._options.light)
        if self._options.fail_on_bad_records:
            types = batch.column("record_type").to_pylist()
            if MALFORMED in types:
                at = types.index(MALFORMED)
                bad = batch.column("error")[at].as_py()
                raise DataLossError(f"entry {rows[at].id} of {rows[at].stream} is not a record: {bad}")
        return batch

    def _reported(self, gaps: Sequence[Gap]) -> Iterator[Any]:
        self._check_loss(gaps)
        if gaps:
            yield to_batch(self._kind, [gap_row(gap) for gap in gaps])

    def _check_loss(self, gaps: Sequence[Gap]) -> None:
        if gaps and self._options.fail_on_data_loss:
            raise DataLossError(f"{gaps[0].stream} lost entries: {gaps[0].text}")


class _StreamQueries(NamedTuple):
    """The `planning.StreamQueries` for a stream whose last entry is known."""

    reader: Reader
    last: EntryId

    @property
    def consecutive(self) -> bool:
        """See `planning.StreamQueries`. Ids of topic logs are offsets (CM-40)."""
        return self.reader.kind is not Kind.LOG_META

    def runs(self, stream: str, after: EntryId, through: EntryId, limit: int | None) -> Iterator[Range]:
        """See `planning.StreamQueries`."""
        return self.reader.runs(stream, after, through, limit, self.last)


def lag(start: Position, tip: Tip | None) -> int:
    """How many entries after `start` are still stored, by the store's count; at least 1 if there are any."""
    if tip is None or tip.last <= start.id:
        return 0
    if tip.added < start.n:  # the store lost a tail, so the count of `start` is not comparable
        return tip.length
    return max(1, tip.added - max(start.n, tip.trimmed))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector inside the block. Use it to create thousands of small objects without cycles.

    The collector runs after every 700 new lists and tuples, and a page has 15,000: these runs took half of a reader's
    CPU (PM-79). It may still run once another thread leaves such a block.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
