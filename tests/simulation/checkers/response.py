"""INV-20: the shape of responses with acquired records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import Records, RequestKey, partition_of, request_of
from tests.simulation.final import Final
from tests.simulation.history import Acquired, History, Share


class ResponseShape:
    """Acquired ranges ascend without overlap, between start and end offset, and the data includes all their records."""

    rules: tuple[str, ...] = ("INV-20",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every response separately."""
        records = Records(history, final)
        answers: dict[tuple[RequestKey, Share], list[Acquired]] = defaultdict(list)
        for event in history.of(Acquired):
            answers[request_of(event), event.share].append(event)
        for ranges in answers.values():
            last = -1
            for event in ranges:
                if event.first_offset <= last or event.last_offset < event.first_offset:
                    yield _wrong(event, f"comes after {last}")
                last = event.last_offset
                yield from self._placed(event, records)

    @staticmethod
    def _placed(event: Acquired, records: Records) -> Iterator[Violation]:
        if event.first_offset < event.start_offset or event.last_offset >= event.high_watermark:
            yield _wrong(event, f"is not within {event.start_offset} and {event.high_watermark}")
        if event.delivery_count < 1:
            yield _wrong(event, f"is delivery {event.delivery_count}")
        if any(first <= event.first_offset and event.last_offset <= last for first, last in event.data):
            return
        for offset in records.between(partition_of(event.share), event.first_offset, event.last_offset + 1):
            if not any(first <= offset <= last for first, last in event.data):
                yield _wrong(event, f"came without the data of offset {offset}")
                return


def _wrong(event: Acquired, what: str) -> Violation:
    sentence = f"{event.share}: acquired range {event.first_offset}-{event.last_offset} {what}"
    return Violation("INV-20", sentence, (event,))
