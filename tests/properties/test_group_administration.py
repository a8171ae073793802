"""A group under schedules in which administrators alter its offsets, delete them, and delete the group itself.

In addition to the calls in `test_group_schedules` there are deletions of state, which arrive late, twice, in any order
or never.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from group_coordinator.core import commands as c
from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from tests.properties.test_group_schedules import TOPICS, GroupSchedules

ALTERED_TO = 5


class AdministeredGroup(GroupSchedules):
    altered_to = frozenset({ALTERED_TO})

    def __init__(self) -> None:
        super().__init__()
        self.deletes: list[c.DeleteState] = []
        self.ends: list[c.DeletionFinished] = []

    def _run(self, command: c.Command) -> None:
        with suppress(KafkaError):
            self.driver.run(command)
        for effect in self.driver.take_effects():
            if isinstance(effect, c.InitializeState):
                self.calls.append(effect)
            elif isinstance(effect, c.DeleteState):
                self.deletes.append(effect)

    # ---- administrators

    @rule()
    def delete_the_group(self) -> None:
        self._run(c.DeleteGroup("g", self.driver.now_ms, 1))

    @rule(names=st.lists(TOPICS, min_size=1, unique=True))
    def delete_offsets(self, names: list[str]) -> None:
        self._run(c.DeleteOffsets("g", tuple(names), 1))

    @rule(name=TOPICS, indexes=st.sets(st.integers(0, 4), min_size=1))
    def alter(self, name: str, indexes: set[int]) -> None:
        if (topic := self.driver.image.by_name(name)) is not None:
            offsets = {TopicIdPartition(topic.topic_id, index): ALTERED_TO for index in indexes}
            self._run(c.AlterOffsets("g", offsets, 1))

    @rule()
    def everybody_leaves(self) -> None:
        for member_id in sorted(self.group.members) if self.group else ():
            self._run(c.Heartbeat("g", member_id, -1))

    @rule()
    def resume(self) -> None:
        self._run(c.ResumeDeletions(self.driver.now_ms))

    # ---- deletions at the share coordinator

    @precondition(lambda self: self.deletes)
    @rule(data=st.data(), again=st.booleans())
    def a_delete_arrives(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.deletes) - 1))
        order = self.deletes[at] if again else self.deletes.pop(at)
        failed = set()
        for key in order.partitions:
            if self.stored.get(key, (0, 0))[0] > order.state_epoch:
                failed.add(key.topic_id)
            else:
                self.stored.pop(key, None)
        if order.attempt:
            self.ends.append(c.DeletionFinished("g", order.attempt, frozenset(failed)))

    @precondition(lambda self: self.deletes)
    @rule(data=st.data())
    def a_delete_fails_as_a_whole(self, data: st.DataObject) -> None:
        order = self.deletes.pop(data.draw(st.integers(0, len(self.deletes) - 1)))
        self._run(c.CallEnded("g", order.attempt))

    @precondition(lambda self: self.ends)
    @rule(data=st.data(), again=st.booleans())
    def an_end_arrives(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.ends) - 1))
        self._run(self.ends[at] if again else self.ends.pop(at))

    # ---- further invariants

    @invariant()
    def nothing_under_way_deletes_what_is_consumed(self) -> None:
        for topic_id, indexes in self.group.states.initialized.items() if self.group else ():
            for key in (TopicIdPartition(topic_id, index) for index in indexes):
                if key in self.stored:
                    late = [order.state_epoch for order in self.deletes if key in order.partitions]
                    assert max(late, default=-1) < self.stored[key][0]

    @invariant()
    def a_group_that_is_to_go_has_nothing_else(self) -> None:
        if self.group is not None and self.group.states.dropping:
            assert not self.group.states.topics
            assert not self.group.members

    @invariant()
    def the_log_remembers_deleted_groups(self) -> None:
        other = self.driver.new_shard()
        for record in self.driver.log:
            other.replay(record)
        mine = self.driver.shard._administration.deleted.get("g")
        assert other._administration.deleted.get("g") == mine

    def teardown(self) -> None:
        """Check that an interrupted deletion ends without further events, and that later members then get
        everything."""
        driver = self.driver
        driver.advance(driver.settings.admin_call_ms)
        self.everybody_leaves()
        initializing = self.group is not None and any(topic.initializing for topic in self.group.states.topics.values())
        if not initializing:
            driver.advance(1)
            self._run(c.Sweep(driver.now_ms))
            self._run(c.ResumeDeletions(driver.now_ms))
            for order in self.deletes:
                self._run(c.DeletionFinished("g", order.attempt))
            self._run(c.ResumeDeletions(driver.now_ms))
            assert self.group is None or not (self.group.states.deleting or self.group.states.dropping)
        super().teardown()


TestAdministeredGroup = pytest.mark.rule(
    "GC-93", "GC-94", "GC-98", "GC-99", "GC-103", "GC-107", "OP-6", "OP-12", "OP-16", "INV-12"
)(AdministeredGroup.TestCase)
TestAdministeredGroup.settings = settings(max_examples=60, stateful_step_count=40)
