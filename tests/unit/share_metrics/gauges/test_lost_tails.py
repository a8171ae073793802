"""Which streams lost a tail, by the texts of gaps. Rows are filtered in tests/integration/share_metrics/test_gauges."""

from __future__ import annotations

import pytest

from share_metrics.gauges.lost_tails import newest_tails
from share_metrics.reader import EntryId, Gap


def gap(stream: str, to_id: EntryId, reason: str) -> tuple[str, str]:
    return stream, Gap(stream, EntryId(1, 0), to_id, 3, reason).text


@pytest.mark.rule("PM-123")
def test_only_tails_count_and_of_one_stream_the_newest() -> None:
    found = newest_tails([
        gap("a", EntryId(1, 7), "tail"),
        gap("a", EntryId(2, 1), "tail"),
        gap("a", EntryId(1, 9), "tail"),
        gap("b", EntryId(1, 7), "trimmed"),
        gap("c", EntryId(1, 7), "missing"),
    ])  # fmt: skip
    assert found == {"a": EntryId(2, 1)}
