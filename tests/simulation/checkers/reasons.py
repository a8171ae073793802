"""PL-942 … PL-944, SC-117: why members gave records up stays with the records, whichever process keeps it.

The checker has its own account, by offset, of what members said and which of it took effect. It compares with that what
coordinators hold and read, what leaders keep after a load and after each change, and what dead letters say. Beyond the
limit of a share-partition's reasons only their origin is judged: they may be cut, or not kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from kip932.ids import ACK_REJECT, ACK_RELEASE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.dead_letters import Origin, origin_of, read_letter
from tests.simulation.checkers.reading import REFUSALS, RequestKey, StateKey, offsets, request_of, typed
from tests.simulation.final import Final as FinalState
from tests.simulation.history import Administered, Event, FailureSeen, History, Share, StateAnswered, StateSeen
from tests.simulation.leader_events import AckDone, Locked, ObjectMade, ReasonsGiven, ReasonsKept
from tests.simulation.shape import REASONS_BYTES, REASONS_RANGES, SMALL_LIMITS

#: (delivery count, reason); of two, the greater one is kept.
Said = tuple[int, str]
_NONE: Final = (0, "")
_GIVING_UP: Final = frozenset({ACK_RELEASE, ACK_REJECT})
_KEPT_RANGES: Final = 5_000
_KEPT_BYTES: Final = 256 * 1024


class Limit(NamedTuple):
    """The most that a share-partition keeps in this run."""

    size: int
    ranges: int


class Account:
    """What members said, by state and offset. `given`: everything that may have taken effect. `sure`: the greatest of
    what certainly did. `known`: by object and state epoch, what was sure when the object was made, or is its own."""

    def __init__(self, history: History, limit: Limit) -> None:
        self.given: dict[StateKey, dict[int, set[Said]]] = defaultdict(lambda: defaultdict(set))
        self.sure: dict[StateKey, dict[int, Said]] = defaultdict(dict)
        self.known: dict[int, dict[int, dict[int, Said]]] = {}
        self._limit = limit
        self._sizes: dict[StateKey, tuple[int, int]] = {}
        self._counts: dict[int, dict[int, int]] = defaultdict(dict)
        self._asked: dict[tuple[RequestKey, Share], dict[int, Said]] = {}
        self._refused = {(request_of(event), event.share) for event in history.of(AckDone) if event.code in REFUSALS}

    def note(self, event: Event) -> None:
        """Note an event that changes the account."""
        if isinstance(event, Locked):
            found = dict.fromkeys(offsets(event.first_offset, event.last_offset), event.delivery_count)
            self._counts[event.object_id].update(found)
        elif isinstance(event, ReasonsGiven):
            self._was_given(event)
        elif isinstance(event, AckDone):
            self._done(event)
        elif isinstance(event, ObjectMade):
            mine = [(key, some) for key, some in self.sure.items() if key.share == event.share]
            self.known[event.object_id] = {key.state_epoch: dict(some) for key, some in mine}
        elif isinstance(event, StateAnswered) and event.call == "Delete" and event.code == 0:
            for key in [key for key in self.sure if key.share == event.share]:
                del self.sure[key]

    def crowded(self, key: StateKey) -> bool:
        """Return True if the limit may have been reached: all together exceed it."""
        size, ranges = self._sizes.get(key, (0, 0))
        return size > self._limit.size or ranges > self._limit.ranges

    def _was_given(self, event: ReasonsGiven) -> None:
        request = (request_of(event), event.share)
        if request in self._refused:
            return
        key, least = StateKey(event.share, event.state_epoch), self._asked.setdefault(request, {})
        counts = self._counts[event.object_id]
        for batch, undelivered, reason in event.batches:
            size, ranges = self._sizes.get(key, (0, 0))
            given_up = [offset for offset, kind in typed([batch]) if kind in _GIVING_UP and offset in counts]
            self._sizes[key] = (size + len(given_up) * len(reason.encode()), ranges + len(given_up))
            for offset in given_up:
                back = undelivered[(offset - batch[0]) if len(undelivered) > 1 else 0] if undelivered else False
                for count in {counts[offset], counts[offset] - back}:
                    self.given[key][offset].add((count, reason))
                least[offset] = (counts[offset] - back, reason)

    def _done(self, event: AckDone) -> None:
        least = self._asked.pop((request_of(event), event.share), {})
        if event.code or not event.persisted:
            return
        key = StateKey(event.share, event.state_epoch)
        for found in (self.sure[key], self.known.get(event.object_id, {}).setdefault(event.state_epoch, {})):
            for offset, said in least.items():
                found[offset] = max(said, found.get(offset, _NONE))


def misshapen(start_offset: int, failures: tuple[FailureSeen, ...], limit: Limit) -> str:
    """Return what is wrong with reasons as they are kept, "" if nothing: sorted, disjoint, at or after the start, equal
    neighbours joined, each with a text, and within the limit."""
    for first, last, count, reason in failures:
        if first > last or first < start_offset or not reason:
            return f"({first}, {last}, {count}, {reason!r}) is empty or begins below the start offset {start_offset}"
    for before, after in pairwise(failures):
        if after[0] <= before[1] or (after[0] == before[1] + 1 and after[2:] == before[2:]):
            return f"{after} overlaps {before}, or was not joined with it"
    size = sum(len(reason.encode()) for *_, reason in failures)
    if size > limit.size or len(failures) > limit.ranges:
        return f"{size} bytes in {len(failures)} ranges; at most {limit.size} and {limit.ranges} are kept"
    return ""


class Reasons:
    """The reasons of every state, memory and letter are those that members gave."""

    rules: tuple[str, ...] = ("PL-942", "PL-943", "SC-117")

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check states and memories in order, then letters."""
        small = SMALL_LIMITS in final.pressures
        limit = Limit(REASONS_BYTES, REASONS_RANGES) if small else Limit(_KEPT_BYTES, _KEPT_RANGES)
        account = Account(history, limit)
        for event in history.events:
            account.note(event)
            if isinstance(event, StateSeen):
                key = StateKey(event.share, event.state_epoch)
                yield from _judge(account, key, event, account.sure.get(key, {}), limit)
            elif isinstance(event, ReasonsKept):
                key, known = StateKey(event.share, event.state_epoch), account.known.get(event.object_id, {})
                yield from _judge(account, key, event, known.get(event.state_epoch, {}), limit)
            elif isinstance(event, StateAnswered) and event.call == "Read" and event.code == 0:
                yield from _judge(account, StateKey(event.share, event.state_epoch), event, {}, limit)
        yield from _letters(history, final, account)


def _judge(
    account: Account,
    key: StateKey,
    event: StateSeen | StateAnswered | ReasonsKept,
    sure: Mapping[int, Said],
    limit: Limit,
) -> Iterator[Violation]:
    """Compare kept reasons with what was given for the records, and what certainly took effect."""
    rule = "PL-942" if isinstance(event, ReasonsKept) else "SC-117"
    wrong = misshapen(event.start_offset, event.failures, limit)
    if wrong:
        yield Violation(rule, f"the reasons of {key.share}: {wrong}", (event,))
        return
    crowded, given = account.crowded(key), account.given.get(key, {})
    shown = {
        offset: (count, reason) for first, last, count, reason in event.failures for offset in offsets(first, last)
    }
    for offset, said in shown.items():
        if not _given(said, given.get(offset, set()), crowded):
            yield Violation(rule, f"{key.share} offset {offset} has a reason that no member gave: {said}", (event,))
            return
    start = max(event.start_offset, event.window_start) if isinstance(event, ReasonsKept) else event.start_offset
    for offset, least in sure.items() if not crowded else ():
        if offset >= start and shown.get(offset, _NONE) < least:
            found = shown.get(offset, "none")
            yield Violation(rule, f"{key.share} offset {offset} has the reason {found}, not {least}", (event,))
            return


def _given(said: Said, given: set[Said], crowded: bool) -> bool:
    if said in given or not crowded:
        return said in given
    beginning = said[1].removesuffix("…")
    return any(count == said[0] and reason.strip().startswith(beginning) for count, reason in given)


def _letters(history: History, final: FinalState, account: Account) -> Iterator[Violation]:
    """Compare each letter with what was said about its record, under every state that the record had."""
    names = {each.detail: each.target for each in history.of(Administered) if each.call == "CreateTopics"}
    states: dict[Origin, set[StateKey]] = defaultdict(set)
    for event in history.of(StateAnswered, StateSeen):
        states[origin_of(event.share, 0, names)].add(StateKey(event.share, event.state_epoch))
    for letter in final.letters:
        _, reason, origin = read_letter(letter)
        if origin is not None:
            keys = states[origin._replace(offset=0)]
            if not any(_fits(account, key, origin.offset, reason) for key in keys):
                yield Violation("PL-943", f"{letter} has the reason {reason!r}, which is not that of {origin}")


def _fits(account: Account, key: StateKey, offset: int, reason: str) -> bool:
    given = account.given.get(key, {}).get(offset, set())
    least = account.sure.get(key, {}).get(offset, _NONE)
    if account.crowded(key):
        return not reason or any(_given((count, reason), given, True) for count, _ in given)
    return (not reason and least == _NONE) or any(said >= least and said[1] == reason for said in given)
