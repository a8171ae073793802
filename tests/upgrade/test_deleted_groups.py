"""A rollout that is reverted and then repeated, on a log with deleted groups (GC-93, GC-107)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from group_coordinator import codec
from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.records import Record
from tests.support.group_driver import Driver

Stored = list[tuple[str, bytes]]


def _stored(log: Sequence[Record]) -> Stored:
    return [codec.GroupLogCodec().encode(record, 1) for record in log]


def _read(stored: Stored) -> list[Record]:
    found = (codec.GroupLogCodec().decode(*entry) for entry in stored)
    return [record for record in found if record is not None]


def _taken_over(stored: Stored) -> Driver:
    driver = Driver()
    driver.create("t", 2)
    driver.log = _read(stored)
    driver.reload()
    driver.take_effects()
    return driver


def _used(driver: Driver) -> int:
    """Let a member join and leave; return the group's epoch."""
    driver.settle("A", ["t"])
    driver.beat("A", -1)
    driver.take_effects()
    return driver.shard.groups["g"].epoch


def _deleted(driver: Driver) -> None:
    driver.run(c.DeleteGroup("g", driver.now_ms, 1))
    (order,) = [effect for effect in driver.take_effects() if isinstance(effect, c.DeleteState)]
    driver.run(c.DeletionFinished("g", order.attempt))


def _older(monkeypatch: pytest.MonkeyPatch, stored: Stored) -> Driver:
    """Return a coordinator that supports neither the record nor the mark."""
    with monkeypatch.context() as patched:
        patched.delitem(codec._READ, str(r.DELETED))
        driver = _taken_over(stored)
    driver.log = [
        replace(record, lifecycle=replace(record.lifecycle, dropping=False))
        if isinstance(record, r.StateMetadata)
        else record
        for record in driver.log
    ]
    driver.reload()
    driver.take_effects()
    return driver


@pytest.mark.rule("GC-93", "CM-16")
def test_an_older_coordinator_skips_the_epoch_and_a_newer_one_still_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    new = _taken_over([])
    highest = max(_used(new), _used(new), _used(new))
    _deleted(new)
    stored = _stored(new.log)

    old = _older(monkeypatch, stored)
    assert dict(old.shard.groups) == {}
    assert old.beat("A", 0, ["t"]).member_epoch == 2, "as in Kafka"
    old.beat("A", -1)
    stored += _stored(old.log[len(_read(stored)) - 1 :])  # it keeps the entries that it skips

    again = _taken_over(stored)
    assert again.shard.groups["g"].epoch < highest
    _deleted(again)
    assert again.beat("A", 0, ["t"]).member_epoch == highest + 1


@pytest.mark.rule("GC-107", "CM-16")
def test_an_older_coordinator_leaves_an_interrupted_deletion_to_who_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    new = _taken_over([])
    _used(new)
    new.run(c.DeleteGroup("g", new.now_ms, 1))
    old = _older(monkeypatch, _stored(new.log))
    states = old.shard.groups["g"].states
    assert (list(states.topics), len(states.deleting)) == ([], 1)
    assert old.settle("A", ["t"]).member_epoch > 0, "a member takes the group into use again"
    old.beat("A", -1)
    old.take_effects()
    again = _taken_over(_stored(old.log))
    assert not again.shard.groups["g"].states.deleting
    _deleted(again)
    assert dict(again.shard.groups) == {}
