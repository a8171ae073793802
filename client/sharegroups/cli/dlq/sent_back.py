"""Finds out which dead letters were sent back already, as `dlq redrive` does before it sends: their fresh records are
in the partitions of their origins (CT-177)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups.admin import Admin
from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.core.redrive import scope_of, was_redriven
from sharegroups.cli.dlq.core.seen_origins import Scope, SeenOrigins
from sharegroups.cli.dlq.origins import Origins
from sharegroups.cli.dlq.reading import Found, Queue
from sharegroups.cli.dlq.redriven_before import (
    TARGETS_MAX,
    First,
    FreshRecords,
    add_first,
    missing_targets,
    not_searched,
    target_of,
)
from sharegroups.cli.dlq.times import time_text

#: How long commands and pages that show letters search in all, in seconds.
SEARCH_S: Final = 5.0
#: How many partitions that cannot be searched are named in a note.
_NAMED_MAX: Final = 3


class Sent(NamedTuple):
    """Whether a dead letter was sent back; None if that is not known, for the reason `why`. `at_ms`: when, in ms since
    1970; None when it was not, or when that is not known."""

    back: bool | None
    at_ms: int | None = None
    why: str = ""


NOT_SENT: Final = Sent(False)


def sent_text(sent: Sent) -> str:
    """Return in words whether a dead letter was sent back, and when."""
    if sent.back is None:
        return f"not known: {sent.why}"
    if not sent.back:
        return "no"
    return "yes; when is not known" if sent.at_ms is None else time_text(sent.at_ms)


class SentBack:
    """Searches the origins' partitions, each from the first origin on, as far as the dead letters that are asked about
    need it.

    `within_s`: how long it searches in all; what it has not found by then is not known. `timed`: also remember when the
    letters that are asked about were sent back; in that case ask only about a page of them.
    """

    def __init__(self, admin: Admin, queue: Queue, within_s: float = inf, *, timed: bool = False) -> None:
        self._admin, self._topic_id = admin, queue.topic_id
        self._within_s = self._left_s = within_s
        self._before, self._origins = SeenOrigins(), Origins(admin)
        self._searches: dict[TopicPartition, FreshRecords] = {}
        self._faults: dict[TopicPartition, str] = {}
        self._unknown = 0
        self._reasons: dict[str, None] = {}
        self._is_timed = timed
        self._asked: set[tuple[Scope, int]] = set()
        self._times: dict[tuple[Scope, int, int], int] = {}

    def of(self, page: Sequence[Found]) -> list[Sent]:
        """Return whether each of these was sent back; a record that is not a letter, or a garbled one, was not."""
        firsts: dict[TopicPartition, First] = {}
        self._asked.clear()
        self._times.clear()
        for _, stored_ms, letter in page:
            if letter is not None and not letter.is_garbled:
                add_first(firsts, letter, stored_ms)
                if self._is_timed:
                    self._asked.add(scope_of(letter))
        self._search(firsts)
        sent = [self._sent(found) for found in page]
        for one in sent:
            if one.back is None:
                self._unknown += 1
                if len(self._reasons) <= _NAMED_MAX:
                    self._reasons[one.why] = None
        return sent

    def note(self) -> str:
        """Return for how many letters it is not known whether they were sent back, and why; "" if it is known for
        all."""
        if not self._unknown:
            return ""
        reasons = list(self._reasons)
        named = "; ".join(reasons[:_NAMED_MAX]) + ("; …" if len(reasons) > _NAMED_MAX else "")
        many = "1 letter" if self._unknown == 1 else f"{self._unknown} letters"
        return f"of {many} it is not known whether they were sent back: {named}"

    def _search(self, firsts: dict[TopicPartition, First]) -> None:
        self._check({target for target in firsts if target not in self._searches and target not in self._faults})
        for target, first in sorted(firsts.items()):
            is_full = len(self._searches) + len(self._faults) >= TARGETS_MAX and target not in self._searches
            if target in self._faults or is_full:
                continue
            if self._left_s <= 0 and target not in self._searches:
                self._faults[target] = self._out_of_time(target)
                continue
            began_s = monotonic()
            try:
                search = self._searches.get(target) or FreshRecords(self._admin, self._topic_id, target)
                self._searches[target] = search
                is_whole = search.find(first, self._take, began_s + self._left_s)
            except KafkaError as error:
                self._faults[target] = not_searched(target, error)
            else:
                if not is_whole:
                    self._faults[target] = self._out_of_time(target)
            self._left_s -= monotonic() - began_s

    def _check(self, targets: Iterable[TopicPartition]) -> None:
        """Note those of new partitions that cannot be searched."""
        new = sorted(targets)[: max(TARGETS_MAX - len(self._searches) - len(self._faults), 0)]
        if self._left_s <= 0:
            self._faults |= {target: self._out_of_time(target) for target in new}
            return
        try:
            self._faults |= missing_targets(self._admin, new)
        except KafkaError as error:
            self._faults |= {target: not_searched(target, error) for target in new}

    def _out_of_time(self, target: TopicPartition) -> str:
        place = f"{target.topic}-{target.partition}"
        return f"{place} was not searched to its end within {self._within_s:g} s, as dlq redrive --dry-run does"

    def _take(self, scope: Scope, offset: int, content: int, appended_ms: int | None) -> None:
        self._before.add(scope, offset, content)
        if appended_ms is not None and (scope, offset) in self._asked:
            key = (scope, offset, content)
            self._times[key] = max(appended_ms, self._times.get(key, appended_ms))

    def _sent(self, found: Found) -> Sent:
        letter = found.letter
        if letter is None or letter.is_garbled:
            return NOT_SENT
        if self._before.has_any(*scope_of(letter)):
            fresh = self._origins.fresh_content(letter, found.record, found.stored_ms, is_claimed=True)
            if was_redriven(self._before, letter, fresh):
                return Sent(True, None if fresh is None else self._times.get((*scope_of(letter), fresh)))
        return self._unless_unknown(letter)

    def _unless_unknown(self, letter: Letter) -> Sent:
        target = target_of(letter)
        if target in self._searches and target not in self._faults:
            return NOT_SENT
        return Sent(None, None, self._faults.get(target, f"letters are about more than {TARGETS_MAX} partitions"))
