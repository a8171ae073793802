"""INV-2: keys and headers are delivered unchanged."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.final import Final, Labels
from tests.simulation.history import Delivered, History, Place, ProduceSent


class LabelsKept:
    """A record has the key and headers that its producer set, in the log and in every delivery."""

    rules: tuple[str, ...] = ("INV-2",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check deliveries in order, then the logs at the end. Values that were never sent are left to
        `NoInvention`."""
        sent = {event.value: event for event in history.of(ProduceSent)}
        for event in history.of(Delivered):
            yield from _changed(sent.get(event.value), (event.key, event.headers), event.place, event)
        for partition, found in sorted(final.labels.items()):
            for offset, labels in found.items():
                before = sent.get(final.values[partition][offset])
                yield from _changed(before, labels, Place(*partition, offset), None)


def _changed(sent: ProduceSent | None, labels: Labels, place: Place, event: Delivered | None) -> Iterator[Violation]:
    if sent is not None and (sent.key, sent.headers) != labels:
        where = "is in the log" if event is None else f"was given to {event.member_id}"
        yield Violation(
            "INV-2",
            f"{sent.value!r} was sent with key {sent.key!r} and headers {sent.headers}; at {place} it {where} with key "
            f"{labels[0]!r} and headers {labels[1]}",
            (sent,) if event is None else (sent, event),
        )
