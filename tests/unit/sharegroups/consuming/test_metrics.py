"""The metrics of a share consumer: Kafka's names, and their values."""

from __future__ import annotations

import pytest

from sharegroups.consuming.metrics import CONSUMER, COORDINATOR, FETCH, ConsumerMetrics


@pytest.mark.rule("CL-41", "CL-83")
def test_every_metric_has_kafkas_name_and_is_what_its_name_says() -> None:
    metrics = ConsumerMetrics(started_s=100.0)
    for size, records, latency_ms, throttle_ms in ((10, 2, 5, 0), (30, 4, 15, 8)):
        metrics.fetch_size.add(size)
        metrics.records.add(records)
        metrics.fetch_latency_ms.add(latency_ms)
        metrics.quota_waits.answered(1, throttle_ms, 0)
    metrics.acknowledgements, metrics.acknowledgement_errors, metrics.expired_records = 6, 3, 7
    metrics.heartbeats, metrics.last_heartbeat_s = 5, 108.0
    metrics.heartbeat_ms.add(3)
    metrics.heartbeat_ms.add(2)
    for at_s in (101.0, 102.0, 105.0):
        metrics.polled(at_s)
    metrics.idle_s = 2.5
    found = metrics.snapshot(now_s=110.0, rebalances=2)
    assert {name: value for (group, name), value in found.items() if group == FETCH} == {
        "fetch-size-avg": 20,
        "fetch-size-max": 30,
        "bytes-consumed-rate": 4,
        "bytes-consumed-total": 40,
        "records-per-request-avg": 3,
        "records-per-request-max": 4,
        "records-consumed-rate": 0.6,
        "records-consumed-total": 6,
        "records-expired-total": 7,
        "acknowledgements-send-rate": 0.6,
        "acknowledgements-send-total": 6,
        "acknowledgements-error-rate": 0.3,
        "acknowledgements-error-total": 3,
        "fetch-latency-avg": 10,
        "fetch-latency-max": 15,
        "fetch-rate": 0.2,
        "fetch-total": 2,
        "fetch-throttle-time-avg": 4,
        "fetch-throttle-time-max": 8,
    }
    assert {name: value for (group, name), value in found.items() if group == COORDINATOR} == {
        "heartbeat-rate": 0.5,
        "heartbeat-total": 5,
        "heartbeat-response-time-max": 3,
        "last-heartbeat-seconds-ago": 2,
        "rebalance-total": 2,
        "rebalance-rate-per-hour": 720,
    }
    assert {name: value for (group, name), value in found.items() if group == CONSUMER} == {
        "last-poll-seconds-ago": 5,
        "time-between-poll-avg": 2000,
        "time-between-poll-max": 3000,
        "poll-idle-ratio-avg": 0.25,
    }
    groups = {"consumer-share-fetch-manager-metrics", "consumer-share-coordinator-metrics", "consumer-share-metrics"}
    assert {group for group, _ in found} == groups
