"""INV-15: a topic id is never reused, and nothing of a deleted topic remains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulation.checkers import Violation
from tests.simulation.final import Final
from tests.simulation.history import Administered, Delivered, History, Produced, ProduceSent, Share, StateSeen


class TopicIds:
    """Records are delivered from the topic to which they were sent, under its id; no state for deleted ids remains at
    the end.

    The isolation of groups from each other follows from the other checkers, which check each group separately.
    """

    rules: tuple[str, ...] = ("INV-15",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the produced and delivered records, then the final state."""
        names = _names(history)
        topics = {event.value: event.topic for event in history.of(ProduceSent)}
        for event in history.of(Produced, Delivered):
            name, topic = names.get(event.place.topic_id), topics.get(event.value)
            if None not in (name, topic) and name != topic:
                yield Violation(
                    "INV-15",
                    f"{event.value!r} was sent to {topic} and came to {event.place}, which is {name}",
                    (event,),
                )
        if final.logs:
            existing = {topic_id for topic_id, _ in final.logs}
            yield from _left("served", final.served, existing)
            yield from _left("in the streams", final.rebuilt, existing)


def _names(history: History) -> Mapping[str, str]:
    """Return topic names by id, as far as administrators learned them."""
    return {
        event.detail: event.target
        for event in history.of(Administered)
        if event.call == "CreateTopics" and event.detail
    }


def _left(where: str, states: Mapping[Share, StateSeen], existing: set[str]) -> Iterator[Violation]:
    for share, state in states.items():
        if share.topic_id not in existing:
            yield Violation("INV-15", f"state of {share} is still {where}, though its topic was deleted", (state,))
