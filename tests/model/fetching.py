"""The naive model of one acquire pass (PL-220 … PL-242, PL-607, PL-608, PL-803)."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.records import ACQUIRED, ARCHIVED, AVAILABLE, Record, Records, Rules


class Read(NamedTuple):
    """The limits of a fetch and the result of its log read. `batches`: first and last offset of each log batch;
    `hidden`: the offsets that belong to aborted transactions, if the group uses read_committed."""

    member: str
    exact: bool
    batch_size: int
    budget: int
    offset: int
    batches: list[tuple[int, int]]
    hidden: frozenset[int]


class Pass:
    """One pass. `got`: offset → delivery count; `gone`: offsets that turned out not to be records (T17, T18)."""

    def __init__(self, records: Records, read: Read, rules: Rules, now: int) -> None:
        self.records = records
        self.read = read
        self.rules = rules
        self.lock_end = now + rules.lock_ms
        self.got: dict[int, int] = {}
        self.gone: list[int] = []
        self.complete = True
        self.reach = 0
        self.throttle_at = max(2, -(-rules.limit // 2))  # PL-241

    def run(self) -> dict[int, int]:
        """Acquire; return the acquired offsets with their delivery counts."""
        records, read = self.records, self.read
        if read.budget <= 0 or not read.batches or read.batches[-1][1] < records.start:
            return {}
        self.reach = read.batches[-1][1]
        cap = min(read.budget, records.room(self.rules))
        if cap <= 0:  # PL-222
            if not records.all or read.offset > records.end:
                return {}
            cap = min(read.budget, records.end - read.offset + 1)
            self.reach = min(self.reach, records.end)
        first_read = read.batches[0][0]
        self.gone += records.take_away(read.offset, first_read - 1)  # PL-226
        covering = records.all.get(first_read)
        base = covering.piece[0] if covering is not None else max(first_read, records.start)  # PL-223
        if base > self.reach:
            self.resolve()
            records.advance()
            return {}
        self.walk(base, cap)
        self.resolve()
        for offset in sorted(read.hidden & self.got.keys()):  # PL-803
            records.all[offset].becomes(ARCHIVED)
            self.gone.append(offset)
            del self.got[offset]
        return self.got

    def walk(self, base: int, cap: int) -> None:
        """PL-224, PL-225."""
        low = min(self.read.batches[0][0], base)
        pieces = [piece for piece in self.records.pieces if low <= piece[0] <= self.reach]
        if not pieces:
            self.take_new(base, self.reach, cap)
            return
        cursor = base
        with_gap = self.records.open_gap is not None
        for piece in pieces:
            if len(self.got) >= cap:
                break
            if with_gap and cursor < piece[0]:
                self.take_new(cursor, piece[0] - 1, cap - len(self.got))
                if len(self.got) >= cap:
                    break
            cursor = piece[1] + 1
            often = self.failed_often(piece)
            if often and self.got:
                self.complete = False
                return
            before = len(self.got)
            self.take_cached(piece, cap - len(self.got))
            if often and len(self.got) > before:
                self.complete = False
                return
        if len(self.got) >= cap:
            self.complete = False
        elif pieces[-1][1] < self.reach:
            self.take_new(pieces[-1][1] + 1, self.reach, cap - len(self.got))

    def seen(self, piece: tuple[int, int]) -> list[tuple[int, Record]]:
        """Return those records of a piece that are free and covered by the read."""
        first, last = max(piece[0], self.read.batches[0][0]), min(piece[1], self.reach)
        found = [(offset, self.records.all.get(offset)) for offset in range(first, last + 1)]
        return [(offset, record) for offset, record in found if record is not None and record.is_free]

    def failed_often(self, piece: tuple[int, int]) -> bool:
        """PL-241."""
        return any(record.count >= self.throttle_at for _, record in self.seen(piece))

    def take_cached(self, piece: tuple[int, int], room: int) -> None:
        """PL-225.3 … 5, PL-240. Only in record-limit mode does `room` apply within a piece."""
        limit, quota = self.rules.limit, 0
        for taken, (offset, record) in enumerate(self.seen(piece), 1):
            if limit > 2 and record.count == limit - 1 and taken > 1:
                return
            if not quota and record.count >= self.throttle_at:
                quota = max(1, (piece[1] - piece[0] + 1) >> (record.count - self.throttle_at + 1))
            record.count += 1
            self.hold(offset, record)
            if (limit > 2 and record.count == limit) or taken == quota or (self.read.exact and taken == room):
                return

    def take_new(self, first: int, last: int, cap: int) -> None:
        """PL-230 … PL-236."""
        records = self.records
        if not records.all and records.end > first:
            first = records.end
        if first > last or cap <= 0:
            return
        stop = last
        if cap < last - first + 1:
            self.complete = False
            wanted = first + cap - 1
            stop = min(last, max([wanted, *(end for base, end in self.read.batches if base <= wanted <= end)]))
        if not records.all or min(piece[0] for piece in records.pieces) > first:
            records.start = max(records.start, first)  # PL-231
        for piece in [(first, stop)] if self.read.exact else self.cut(first, stop):
            for offset in range(piece[0], piece[1] + 1):
                record = records.all[offset] = Record(AVAILABLE, 0, piece)
                if not self.read.exact or offset < first + cap:
                    record.count = 1
                    self.hold(offset, record)
        records.end = max(records.end, stop)

    def cut(self, first: int, last: int) -> list[tuple[int, int]]:
        """PL-235."""
        pieces: list[tuple[int, int]] = []
        begin = first
        if last - first + 1 > self.read.batch_size:
            for base, _ in self.read.batches:
                if first < base <= last and base - begin >= self.read.batch_size:
                    pieces.append((begin, base - 1))
                    begin = base
        return [*pieces, (begin, last)]

    def hold(self, offset: int, record: Record) -> None:
        """T1, T3."""
        record.state, record.holder, record.lock_end = ACQUIRED, self.read.member, self.lock_end
        self.got[offset] = record.count

    def resolve(self) -> None:
        """PL-607, PL-608."""
        records, gap = self.records, self.records.gap
        if gap is None:
            return
        if records.open_gap is None:
            records.gap = None
            return
        reached = self.reach
        if not self.complete:
            reached = min(reached, max(self.got)) if self.got else self.read.offset - 1
        walked = self.read.offset <= gap[0] <= reached
        records.shrink_gap(reached + 1 if walked else gap[0], gap[1])
