"""Progress in the metrics: the series, their labels, their bound."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from kip932.ids import SharePartitionKey
from partition_leader.progress.core.figures import Figures, Held
from partition_leader.progress.core.topics import TopicFigures
from partition_leader.progress.leader_progress import Board
from partition_leader.progress.metrics import ProgressMetrics
from partition_leader.share_partition.core.finished import Finished
from tests.support.virtual_time import virtual

TOPIC, GONE = b"t" * 16, b"x" * 16
NAMES = {TOPIC: "orders"}
KNOWN = Figures(2, 7, 1_500, 3, 2, 1, Finished(4, 2, 1, 9, 2, 0), 20, since_finish_ms=250, longest=Held("m", 60_000))
UNKNOWN = Figures()


def board(parts: dict[tuple[str, bytes, int], Figures], departed: dict[tuple[str, bytes], Finished]) -> Board:
    keyed = {SharePartitionKey(*key): figures for key, figures in parts.items()}
    return Board(1, keyed, {(key[0], key[1]): figures for key, figures in parts.items()}, departed)


async def exported(
    parts: dict[tuple[str, bytes, int], Figures],
    topics: dict[bytes, TopicFigures] | None = None,
    departed: dict[tuple[str, bytes], Finished] | None = None,
    **settings: Any,
) -> list[str]:
    """Return the samples of a scrape."""
    registry = CollectorRegistry()
    metrics = ProgressMetrics(registry, **settings)
    await metrics.refresh(board(parts, departed or {}), topics or {}, lambda topic_id: NAMES.get(topic_id, ""))
    metrics.close()
    lines = generate_latest(registry).decode().splitlines()
    return [line.removeprefix("sharegroups_") for line in lines if not line.startswith("#")]


def of(lines: list[str], group: str) -> list[str]:
    return sorted(line for line in lines if f'group="{group}"' in line)


@pytest.mark.rule("PL-956")
@virtual
async def test_every_figure_has_its_series_and_none_while_it_is_unknown() -> None:
    parts = {("g", TOPIC, 0): KNOWN, ("new", TOPIC, 0): UNKNOWN, ("g", GONE, 0): KNOWN}
    departed = {("g", TOPIC): Finished(10, 0, 5, 3, 0, 4)}
    lines = await exported(parts, {TOPIC: TopicFigures(5, 4, 300), GONE: TopicFigures(1, 1, 1)}, departed)
    labels, archived = '{group="g",topic="orders"', "share_group_records_archived_total"
    assert of(lines, "g") == [
        f"share_group_dead_letters_waiting{labels}}} 1.0",
        f"share_group_lag{labels}}} 7.0",
        f"share_group_longest_held_seconds{labels}}} 60.0",
        f"share_group_oldest_unfinished_seconds{labels}}} 1.5",
        *(
            f'{archived}{{cause="{cause}",destination="{where}",group="g",topic="orders"}} {count}'
            for cause, where, count in (
                ("delivery_limit", "dead_letter_queue", 4.0),
                ("delivery_limit", "none", 2.0),
                ("rejected", "dead_letter_queue", 2.0),
                ("rejected", "none", 0.0),
            )
        ),
        f"share_group_records_delayed{labels}}} 2.0",
        f"share_group_records_finished_total{labels}}} 22.0",
        f"share_group_records_in_flight{labels}}} 3.0",
        f"share_group_since_finish_seconds{labels}}} 0.25",
    ]
    names = {line.partition("{")[0] for line in of(lines, "new")}
    assert not names & {
        "share_group_lag", "share_group_oldest_unfinished_seconds", "share_group_since_finish_seconds",
    }  # fmt: skip
    assert "share_group_records_finished_total" in names, "it begins at 0"
    assert sorted(line for line in lines if line.startswith("topic_")) == [
        'topic_log_bytes{topic="orders"} 300.0',
        'topic_log_records{topic="orders"} 4.0',
        'topic_records_appended_total{topic="orders"} 5.0',
    ]


@pytest.mark.rule("PL-956")
@virtual
async def test_with_a_setting_each_partition_has_series() -> None:
    parts = {("g", TOPIC, 0): KNOWN, ("g", TOPIC, 1): KNOWN._replace(lag=9)}
    lines = await exported(parts, departed={("g", TOPIC): Finished(10)}, by_partition=True)
    assert [line for line in lines if line.startswith("share_group_lag")] == [
        'share_group_lag{group="g",partition="0",topic="orders"} 7.0',
        'share_group_lag{group="g",partition="1",topic="orders"} 9.0',
    ]
    assert 'share_group_records_finished_total{group="g",partition="0",topic="orders"} 7.0' in lines
    rejected = 'cause="rejected",destination="dead_letter_queue",group="g",partition="1",topic="orders"'
    assert f"share_group_records_archived_total{{{rejected}}} 2.0" in lines


@pytest.mark.rule("PL-956")
@virtual
async def test_beyond_the_bound_the_largest_lags_keep_their_series_and_that_is_said() -> None:
    parts = {(f"g{number}", TOPIC, 0): UNKNOWN._replace(lag=number) for number in range(5)}
    with capture_logs() as said:
        lines = await exported(parts, {TOPIC: TopicFigures(1), GONE: TopicFigures(2)}, rows_max=2)
    assert [line for line in lines if line.startswith("share_group_lag")] == [
        'share_group_lag{group="g4",topic="orders"} 4.0',
        'share_group_lag{group="g3",topic="orders"} 3.0',
    ]
    assert "share_group_rows_left_out 3.0" in lines
    (line,) = said
    assert (line["event"], line["rows"], line["bound"]) == (
        "progress_series_left_out", 5, "metrics.progress.rows.max=2",
    )  # fmt: skip


@pytest.mark.rule("PL-956")
@virtual
async def test_what_is_gone_loses_its_series() -> None:
    registry = CollectorRegistry()
    metrics = ProgressMetrics(registry)
    for parts in ({("g", TOPIC, 0): KNOWN}, {}):
        await metrics.refresh(board(parts, {}), {}, lambda _: "orders")
    assert b'group="g"' not in generate_latest(registry)


@pytest.mark.rule("PL-954")
def test_rounds_without_an_answer_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = ProgressMetrics(registry)
    assert registry.get_sample_value("sharegroups_stored_progress_unknown_total") == 0
    metrics.unknown()
    assert registry.get_sample_value("sharegroups_stored_progress_unknown_total") == 1


@pytest.mark.rule("PL-956")
@virtual
async def test_rounds_that_were_exported_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = ProgressMetrics(registry)
    assert registry.get_sample_value("sharegroups_progress_rounds_total") == 0
    for _ in range(2):
        await metrics.refresh(board({}, {}), {}, NAMES.__getitem__)
    metrics.close()
    assert registry.get_sample_value("sharegroups_progress_rounds_total") == 2
