"""A continuous ingest survives a store outage, such as a fail-over, and ingests every entry once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from share_metrics.ingest.writing import Running, Source, Step, Watch, start
from share_metrics.reader import Kind
from tests.support.pipeline_entries import snapshot, update

from .account import account
from .world import BOUND_S, Log, running

S0 = "{sgs:0}:log"


def until(condition: Callable[[], object], job: Running) -> None:
    """Wait on a job as the command does until the condition holds, for a bounded time."""
    for _ in range(BOUND_S):
        assert not job.wait(1)
        if condition():
            return
    raise AssertionError(f"waited {BOUND_S} s in vain")


@pytest.mark.rule("PM-36", "PM-39", "PM-68")
def test_a_store_that_is_away_for_a_while_costs_a_continuous_ingest_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    written: list[int] = []
    reported: list[str] = []

    def step(_kind: Kind, number: int, step: Step) -> None:
        if step is Step.SHOWN:
            written.append(number)

    with running() as world:
        world.make_cluster(state_shards=1)
        log = Log(world, S0)
        log.state(snapshot(0), update(4))
        watch = Watch(step, again=lambda kind, pause_s, why: reported.append(f"{kind} {pause_s:g} {why}"))
        job = start(spark, Source(world.url), tmp_path, [Kind.SHARE_STATE], once=False, trigger_s=0.2, watch=watch)
        try:
            until(lambda: written, job)
            world.server.stop()
            until(lambda: reported, job)
            asyncio.run(world.server.start())
            log.state(update(5), update(6))
            until(lambda: len(written) > 1, job)
        finally:
            job.stop()
        assert reported[0].startswith("share_state 1 the store at ")
        found = account(spark, world, tmp_path, ends=0)
        assert (found.entries, found.rows, found.lost, found.doubled) == (5, 5, 0, 0)
