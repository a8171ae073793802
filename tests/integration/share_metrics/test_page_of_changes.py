"""Compares a page's numbers with a story's ledger: records from append to end, take-overs, and the time before the
page."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kip932.records.v1 import owner_log_pb2 as owner_pb
from share_metrics.reader import EntryId, Kind
from share_metrics.reader.decoding import RawEntry, decode
from share_metrics.replay.append_times import percentile_ms
from share_metrics.report import Logs, Report, collect
from share_metrics.report.model import Event, Mark, PartitionLine
from tests.support.pipeline_entries import snapshot, state_entry, update

from .frames import BASE_S, frame, groups
from .story import END, MINUTE, REPORTED, Ledger, Story, at_time

HALF: Final = END // 2
FIFTH: Final = 2 ** (1 / 4)


def changes(spark: SparkSession, story: Story) -> DataFrame:
    """Return the records of a new leader of `busy`-0 and a new owner of its state, and of a reset of `done`."""
    (busy, _), (done,) = story.of("busy"), story.of("done")
    claim = owner_pb.ClaimEntry(append_time_ms=(BASE_S + END - 65) * 1000).SerializeToString()
    led = update(key=busy.key)._replace(leader_epoch=2)
    begun = snapshot(done.start, key=done.key, state_epoch=2)
    streams = story.STREAMS
    return frame(spark, Kind.SHARE_STATE, [
        decode(Kind.SHARE_STATE, RawEntry(streams["busy"], EntryId(2, 0), "C", claim)),
        decode(Kind.SHARE_STATE, state_entry(EntryId(2, 1), led, (BASE_S + END - 10) * 1000, streams["busy"])),
        decode(Kind.SHARE_STATE, state_entry(EntryId(2, 1), begun, (BASE_S + HALF + 70) * 1000, streams["done"])),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


@pytest.fixture(scope="module")
def report(spark: SparkSession, story: Story) -> Report:
    """A page of the story's second half."""
    states = story.states(spark).unionByName(changes(spark, story))
    return collect(states, groups(spark, REPORTED), at_time(HALF), at_time(END), logs=Logs(story.log_ends(spark)))


def line_of(report: Report, ledger: Ledger) -> PartitionLine:
    (found,) = (
        one for one in report.partitions if one.group_id == ledger.group and one.name.endswith(f"-{ledger.partition}")
    )
    return found


@pytest.mark.rule("PM-91")
def test_each_percentile_lies_between_its_bounds(story: Story, report: Report) -> None:
    (found,) = report.ends
    took = Counter(ms for ledger in story.of("busy") for at, ms in ledger.ended if at >= HALF)
    assert (found.group_id, found.records, found.unknown) == ("busy", took.total(), 0)
    for share, bounds in ((0.5, found.p50_ms), (0.95, found.p95_ms), (0.99, found.p99_ms)):
        exact = percentile_ms(took, share)
        assert exact is not None
        assert bounds is not None
        assert bounds[0] <= exact <= bounds[1]
        # The story's writes report an append within a minute.
        assert bounds[1] / FIFTH - bounds[0] * FIFTH <= MINUTE * 1000


@pytest.mark.rule("PM-92")
def test_take_overs_and_resets_are_marked(story: Story, report: Report) -> None:
    (busy, other), (done,), (left,) = (story.of(group) for group in ("busy", "done", "left"))
    claimed = Mark(BASE_S + END - 65, Event.OWNER)
    assert line_of(report, busy).marks == (claimed, Mark(BASE_S + END - MINUTE, Event.LEADER))
    assert line_of(report, other).marks == (claimed,)
    assert line_of(report, done).marks == (Mark(BASE_S + HALF + MINUTE, Event.RESET),)
    assert line_of(report, left).marks == ()


@pytest.mark.rule("PM-93")
def test_the_time_before_has_its_own_sums(story: Story, report: Report) -> None:
    minutes = range(HALF // MINUTE)
    before = report.before
    assert before is not None
    assert report.read_s == before.seconds == HALF
    assert before.finished == sum(ledger.finished_in[minute] for ledger in story.all for minute in minutes)
    arrived = sum(ledger.arrived_in[minute] for ledger in story.all for minute in minutes)
    assert (before.lag, before.lag_unknown) == (arrived - before.finished, 0)
    assert (before.accepted, before.rejected, before.limited) == (before.finished, 0, 0)
    busy = story.of("busy")
    timed_out = sum(minute % 3 == 0 for minute in minutes) * len(busy)
    given_back = sum(minute % 3 == 1 for minute in minutes) * len(busy)
    released = len(minutes) * len(busy) - timed_out - given_back
    assert (before.timed_out, before.released) == (timed_out, released)
    assert released
