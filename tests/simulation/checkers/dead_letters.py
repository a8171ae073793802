"""INV-18: every record on its way to the dead-letter queue gets a letter there, and every letter is for such a record.

A record is on its way from the moment when a write stores it as Archiving. Letters are read from the store when the
cluster is at rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kip932.ids import STATE_ARCHIVING
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import Records, StateKey, doomed, offsets, partition_of
from tests.simulation.final import Final as FinalState
from tests.simulation.final import Letter
from tests.simulation.history import (
    LETTER_TOPIC,
    Administered,
    HeadersSeen,
    History,
    ProduceSent,
    Share,
    StateAnswered,
    StateSeen,
)

_PREFIX: Final = "__dlq.errors."
_NAMES: Final = ("topic", "partition", "offset", "group", "delivery.count", "message", "topic.id")
_REJECTED: Final = "Offset rejected by client."
_LIMIT: Final = "Offset delivery count exceeded the threshold."
#: How long a leader that a fault has cut off may keep writing letters to a deleted topic.
_UNHEARD_MS: Final = 5_000


class Origin(NamedTuple):
    """The record that a letter is for. A letter only names the topic, so successive topics with the same name are not
    distinguished."""

    group_id: str
    topic: str
    partition: int
    offset: int


class OnTheirWay:
    """Records that were stored as Archiving. `may`: with their counts, from every state that was read, sampled, or
    written with any outcome. `must`: from confirmed writes of state that still exists, if the letters' topic was not
    deleted afterwards or shortly before."""

    def __init__(self, history: History, final: FinalState) -> None:
        self.may: dict[Origin, set[int]] = defaultdict(set)
        self.must: dict[Origin, StateAnswered | StateSeen] = {}
        changes = list(history.of(Administered))
        names = {each.detail: each.target for each in changes if each.call == "CreateTopics"}
        deleted = [each for each in changes if each.call == "DeleteTopics" and each.target == LETTER_TOPIC]
        last_ms = max((each.at_ms + _UNHEARD_MS for each in deleted), default=-1)
        gone = doomed(history)
        for event in history.of(StateAnswered, StateSeen):
            current = final.served.get(event.share)
            holds = current is not None and current.state_epoch == event.state_epoch
            written = isinstance(event, StateAnswered) and event.call == "Write" and event.code == 0
            certain = written and holds and event.share.topic_id not in gone and event.at_ms > last_ms
            for first, last, state, count, *_ in event.batches:
                for offset in offsets(first, last) if state == STATE_ARCHIVING else ():
                    origin = origin_of(event.share, offset, names)
                    self.may[origin].add(count)
                    if certain:
                        self.must.setdefault(origin, event)


def origin_of(share: Share, offset: int, names: dict[str, str]) -> Origin:
    """Return a record's origin, with its topic's name."""
    return Origin(share.group_id, names.get(share.topic_id, share.topic_id), share.partition, offset)


def read_letter(letter: Letter) -> tuple[HeadersSeen, str, Origin | None]:
    """Return the headers of the record itself, why a member gave it up ("" if the letter does not say; PL-943), and the
    letter's origin, None if its headers do not name it."""
    own = letter.headers[: -len(_NAMES)]
    reason = ""
    if own and own[-1][0] == _PREFIX + "reason":
        own, reason = own[:-1], (own[-1][1] or b"").decode()
    said = _said(letter)
    return own, reason, None if said is None else _origin(said)


def _said(letter: Letter) -> dict[str, str] | None:
    """Return the server's headers, which come last and in a fixed order; None if they are missing."""
    found = [(name.removeprefix(_PREFIX), (value or b"").decode()) for name, value in letter.headers[-len(_NAMES) :]]
    named = all(name.startswith(_PREFIX) for name, _ in letter.headers[-len(_NAMES) :])
    return dict(found) if named and tuple(name for name, _ in found) == _NAMES else None


def _origin(said: dict[str, str]) -> Origin:
    return Origin(said["group"], said["topic"], int(said["partition"]), int(said["offset"]))


class LettersArrive:
    """Each record that was on its way has a letter or is still on its way; none is lost (PL-904, PL-907, PL-611)."""

    rules: tuple[str, ...] = ("INV-18",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Compare the letters at rest with the writes."""
        if not final.served:
            return
        arrived = {_origin(said) for letter in final.letters if (said := _said(letter)) is not None}
        waiting = {
            StateKey(share, state.state_epoch): {
                offset
                for first, last, code, *_ in state.batches
                if code == STATE_ARCHIVING
                for offset in offsets(first, last)
            }
            for share, state in final.served.items()
        }
        records = Records(history, final)
        for origin, event in OnTheirWay(history, final).must.items():
            if origin.offset < records.log_start(partition_of(event.share)):
                continue  # records that the log start passed before their letter was started get none (PL-905)
            still = waiting.get(StateKey(event.share, event.state_epoch), set())
            if origin not in arrived and origin.offset not in still:
                yield Violation("INV-18", f"{origin} was on its way to the queue, and no letter is there", (event,))


class LettersTrue:
    """A letter names a record that was on its way, with a count that it had; a copied record has the original's
    content."""

    rules: tuple[str, ...] = ("INV-18", "INV-2")

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check every letter at rest."""
        may = OnTheirWay(history, final).may
        sent = {event.value: event for event in history.of(ProduceSent)}
        for letter in final.letters:
            said = _said(letter)
            if said is None:
                yield Violation("INV-18", f"{letter} does not end with its headers in their order")
                continue
            origin = _origin(said)
            if int(said["delivery.count"]) not in may.get(origin, ()):
                known = sorted(may.get(origin, ()))
                yield Violation("INV-18", f"{letter} is of {origin}, which was on its way with counts {known}")
            if said["message"] not in {_REJECTED, _LIMIT}:
                yield Violation("INV-18", f"{letter} gives no known cause")
            yield from self._copy(letter, origin, sent)

    @staticmethod
    def _copy(letter: Letter, origin: Origin, sent: dict[bytes, ProduceSent]) -> Iterator[Violation]:
        own, _, _ = read_letter(letter)
        if letter.value is None:
            if letter.key != ":".join(map(str, origin)).encode() or own:
                yield Violation("INV-18", f"{letter} has no copy, and not the key of {origin} alone")
            return
        source = sent.get(letter.value)
        if source is None or (source.key, source.headers) != (letter.key, own):
            yield Violation("INV-2", f"{letter} is not a copy of a record that was sent")


class NoLettersUnasked:
    """In a group without a dead-letter queue no record is on its way, and no letter arrives."""

    rules: tuple[str, ...] = ("INV-18",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check groups that never had a queue configured."""
        asked = {
            event.target
            for event in history.of(Administered)
            if event.call == "IncrementalAlterConfigs" and event.detail.startswith("errors.deadletterqueue.topic.name=")
        }
        for event in history.of(StateAnswered):
            if event.share.group_id not in asked and any(state == STATE_ARCHIVING for _, _, state, *_ in event.batches):
                yield Violation("INV-18", f"{event.share} has records on their way to a queue it has not", (event,))
