"""The line about a quota that makes a client wait, and its metrics."""

from __future__ import annotations

import pytest

from sharegroups.connection.quota_waits import LINE_EVERY_MS, QuotaWaits


@pytest.mark.rule("CL-163")
def test_a_wait_is_logged_once_a_minute_with_the_number_of_those_left_out(caplog: pytest.LogCaptureFixture) -> None:
    waits = QuotaWaits("producer", "producer_byte_rate")
    waits.answered(1, 0, 10)
    assert not caplog.records
    for now_ms, node_id, throttle_ms in ((20, 1, 2_500), (30, 2, 500), (LINE_EVERY_MS, 1, 1_000)):
        waits.answered(node_id, throttle_ms, now_ms)
    waits.answered(3, 6_000, 20 + LINE_EVERY_MS)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "node 1 makes this producer wait for 2.5 s, since the quota producer_byte_rate of its user or client id is "
            "used up; nothing is lost. An administrator can show and raise quotas with sharegroups configs.",
        ),
        (
            "WARNING",
            "node 3 makes this producer wait for 6.0 s, since the quota producer_byte_rate of its user or client id is "
            "used up; nothing is lost. An administrator can show and raise quotas with sharegroups configs. It had to "
            "wait 2 more times since the last line.",
        ),
    ]
    assert (waits.average_ms, waits.maximum_ms) == (2_000, 6_000)
    assert QuotaWaits("producer", "producer_byte_rate").average_ms == 0
