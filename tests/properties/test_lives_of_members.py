"""The law on which GC-39a depends: the group epoch of a removal separates the lives of a member, that is, its
successive memberships."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_coordinator.core import commands as c
from shard_runtime.config.group_config import GroupConfig
from tests.support.group_driver import KAFKA, Driver

MEMBERS = ("A", "B", "C")
STEP = st.one_of(
    st.tuples(st.just("beat"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("leave"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("advance"), st.sampled_from((1, 400, 1_000, 5_000, 20_000, 45_001))),
    st.tuples(st.sampled_from(("grow", "reload", "initialize")), st.none()),
)


class Group:
    """A group, and the member epochs with which each member may hold a session, by life."""

    def __init__(self, interval_ms: int, fast: bool) -> None:
        self.driver = Driver(
            settings=replace(KAFKA, fast_first_assignment=fast),
            configs=GroupConfig(assignment_interval_ms=interval_ms, session_timeout_ms=45_000),
        )
        self.partitions = 1
        self.driver.create("t", 1)
        self.epochs: dict[str, int] = {}
        #: For each life of a member, the current one last: the member epochs at which it had partitions.
        self.lives: dict[str, list[set[int]]] = defaultdict(lambda: [set()])
        self.assigned: set[str] = set()
        self.removals: dict[str, int] = {}

    def beat(self, member: str) -> None:
        present = self.driver.shard.groups.get("g")
        known = present is not None and member in present.members
        epoch = self.epochs.get(member, 0) if known else 0
        if not known:
            self.assigned.discard(member)  # it joins: it has dropped its partitions (CL-6)
        reply = self.driver.beat(member, epoch, None if epoch else ["t"])
        self.epochs[member] = reply.member_epoch
        if reply.assignment is not None:
            (self.assigned.add if any(reply.assignment.values()) else self.assigned.discard)(member)
        if member in self.assigned:
            self.lives[member][-1].add(reply.member_epoch)
        self.inspect(member)

    def inspect(self, member: str) -> None:
        """Check that the last removal, whenever it is reported again, does not affect the current life."""
        removed = self.removals.get(member)
        if removed is not None:
            assert all(epoch >= removed for epoch in self.lives[member][-1]), (member, removed, self.lives[member])

    def note_removals(self) -> None:
        for effect in self.driver.take_effects():
            if isinstance(effect, c.MemberExpired):
                member = effect.member.member_id
                assert all(epoch < effect.group_epoch for life in self.lives[member] for epoch in life)
                assert effect.group_epoch > self.removals.get(member, 0)
                self.removals[member] = effect.group_epoch
                self.lives[member].append(set())
            else:
                self.driver.effects.append(effect)

    def step(self, what: str, how: object) -> None:
        driver = self.driver
        if what == "beat":
            self.beat(str(how))
        elif what == "leave":
            group = driver.shard.groups.get("g")
            if group is not None and how in group.members:
                driver.beat(str(how), -1)
                self.lives[str(how)].append(set())
        elif what == "advance":
            assert isinstance(how, int)
            driver.advance(how)
        elif what == "grow":
            self.partitions += 1
            driver.create("t", self.partitions)
        elif what == "reload":
            driver.reload()
        elif what == "initialize":
            driver.initialize()


@pytest.mark.rule("GC-39a")
@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60), st.sampled_from((0, 1_000)), st.booleans())
def test_no_session_of_a_life_that_ended_reaches_the_epoch_of_its_removal_and_every_later_one_does(
    steps: list[tuple[str, object]], interval_ms: int, fast: bool
) -> None:
    group = Group(interval_ms, fast)
    for what, how in [("beat", "A"), ("initialize", None), ("beat", "A"), *steps]:
        group.step(what, how)
        group.note_removals()
