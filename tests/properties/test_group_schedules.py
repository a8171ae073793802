"""A group under any schedule: late, lost, duplicate or reordered outcomes, fail-overs, topics created and deleted.

The model is the share coordinator: the state epoch that it stores for each partition, and its responses.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from group_coordinator.core import commands as c
from group_coordinator.core.group import Group
from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from tests.support.group_driver import Driver, bare

MEMBERS = st.sampled_from(["A", "B", "C"])
TOPICS = st.sampled_from(["t", "u"])


class GroupSchedules(RuleBasedStateMachine):
    #: Start offsets that an alteration has set.
    altered_to: frozenset[int] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.driver.create("t", 2)
        self.calls: list[c.InitializeState] = []
        self.outcomes: list[c.InitializationFinished] = []
        self.stored: dict[TopicIdPartition, tuple[int, int]] = {}
        self.epoch = 0
        self.generation = 0

    @property
    def group(self) -> Group | None:
        return self.driver.shard.groups.get("g")

    def _run(self, command: c.Command) -> None:
        with suppress(KafkaError):
            self.driver.run(command)
        self.calls += [effect for effect in self.driver.take_effects() if isinstance(effect, c.InitializeState)]

    # ---- members

    @rule(member_id=MEMBERS, topics=st.sets(TOPICS, min_size=1))
    def join(self, member_id: str, topics: set[str]) -> None:
        self._run(c.Heartbeat("g", member_id, 0, None, tuple(topics)))

    @rule(member_id=MEMBERS, back=st.integers(0, 1), topics=st.none() | st.sets(TOPICS))
    def heartbeat(self, member_id: str, back: int, topics: set[str] | None) -> None:
        member = self.group.members.get(member_id) if self.group else None
        if member is not None:
            epoch = member.previous_epoch if back else member.epoch
            self._run(c.Heartbeat("g", member_id, epoch, None, None if topics is None else tuple(topics)))

    @rule(member_id=MEMBERS)
    def leave(self, member_id: str) -> None:
        self._run(c.Heartbeat("g", member_id, -1))

    @rule(ms=st.integers(0, 60_000))
    def time_passes(self, ms: int) -> None:
        self.driver.advance(ms)

    # ---- the share coordinator: calls arrive in any order, responses arrive late, twice or never

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), again=st.booleans())
    def a_call_arrives(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.calls) - 1))
        call = self.calls[at] if again else self.calls.pop(at)
        fenced, done, epoch = [], [], -1
        for key, start_offset in call.partitions:
            stored = self.stored.get(key, (0, 0))
            if stored[0] > call.state_epoch:
                fenced.append(key)
                epoch = max(epoch, stored[0])
            else:
                if stored[0] < call.state_epoch:
                    self.stored[key] = (call.state_epoch, start_offset)
                done.append(key)
        answer = c.InitializationFinished("g", call.attempt, tuple(done), (), tuple(fenced), epoch, call.fenced_rounds)
        self.outcomes.append(answer)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_call_is_refused(self, data: st.DataObject) -> None:
        call = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        failed = tuple(key for key, _ in call.partitions)
        self.outcomes.append(c.InitializationFinished("g", call.attempt, (), failed))

    @precondition(lambda self: self.outcomes)
    @rule(data=st.data(), again=st.booleans())
    def an_answer_arrives(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.outcomes) - 1))
        self._run(self.outcomes[at] if again else self.outcomes.pop(at))

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def the_share_coordinator_loses_state(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.stored)))
        del self.stored[key]
        if self.group is not None:
            self._run(c.Repair("g", self.group.epoch, (key,)))

    # ---- topics and coordinators

    @rule(name=TOPICS, partitions=st.integers(1, 4))
    def create_or_grow(self, name: str, partitions: int) -> None:
        found = self.driver.image.by_name(name)
        if found is None:
            self.generation += 1
            self.driver.create(name, partitions, self.generation)
        elif partitions > found.partitions:
            self.driver.create(name, partitions, found.topic_id[-1])

    @rule(name=TOPICS)
    def delete(self, name: str) -> None:
        self.driver.delete(name)

    @rule()
    def sweep(self) -> None:
        self._run(c.Sweep(self.driver.now_ms))

    @rule()
    def fail_over(self) -> None:
        self.driver.reload()

    # ---- invariants

    @invariant()
    def epochs_are_in_order(self) -> None:
        if (group := self.group) is None:
            return
        assert self.epoch <= group.epoch
        self.epoch = group.epoch
        assert group.assignment_epoch <= group.epoch
        for member in group.members.values():
            assert -1 <= member.previous_epoch < member.epoch <= group.assignment_epoch

    @invariant()
    def a_partition_is_in_one_list_and_initialised_only_after_a_success(self) -> None:
        for topic_id, topic in self.group.states.topics.items() if self.group else ():
            assert not set(topic.initialized) & topic.initializing.keys()
            assert topic.initialized or topic.initializing
            for index, entry in topic.initializing.items():
                assert entry.start_offset in {-1, 0, *self.altered_to}
                assert entry.start_offset != -1 or index < topic.first_count
            for index in topic.initialized:
                self._nothing_under_way_resets(TopicIdPartition(topic_id, index))

    def _nothing_under_way_resets(self, key: TopicIdPartition) -> None:
        """Check that no call that may still arrive resets an initialised partition, so its consumers lose nothing
        (SC-33, GC-76)."""
        if key in self.stored:
            late = [call.state_epoch for call in self.calls if key in dict(call.partitions)]
            assert max(late, default=-1) <= self.stored[key][0]

    @invariant()
    def no_member_holds_what_it_does_not_subscribe_to(self) -> None:
        for member in self.group.members.values() if self.group else ():
            for topic_id in member.assigned:
                found = self.driver.image.by_id(topic_id)
                assert found is None or found.name in member.subscribed or member.epoch < self.epoch

    @invariant()
    def exactly_the_members_have_session_clocks(self) -> None:
        members = set(self.group.members) if self.group else set()
        deadline_ms = self.driver.shard.next_deadline()
        assert (deadline_ms is None) == (not members)

    @invariant()
    def the_log_says_the_same(self) -> None:
        other = self.driver.new_shard()
        for record in self.driver.log:
            other.replay(record)
        assert bare(dict(other.groups)) == bare(dict(self.driver.shard.groups))

    def teardown(self) -> None:
        """Check that without further faults every member gets all its partitions: no schedule blocks a group."""
        driver = self.driver
        self._run(c.Heartbeat("g", "A", 0, None, ("t", "u")))
        for _ in range(8):
            driver.advance(30_000)
            for member_id in sorted(self.group.members) if self.group else ():
                member = self.group.members[member_id] if self.group else None
                assert member is not None
                self._run(c.Heartbeat("g", member_id, member.epoch))
            while self.calls:
                call = self.calls.pop()
                done = tuple(key for key, _ in call.partitions)
                self._run(c.InitializationFinished("g", call.attempt, done))
        group = self.group
        assert group is not None
        subscribed = {name for member in group.members.values() for name in member.subscribed}
        wanted = {
            TopicIdPartition(topic.topic_id, index)
            for topic in driver.image.topics
            if topic.name in subscribed
            for index in range(topic.partitions)
        }
        held = {
            TopicIdPartition(topic_id, index)
            for member in group.members.values()
            for topic_id, indexes in member.assigned.items()
            for index in indexes
        }
        assert held == wanted


TestGroupSchedules = pytest.mark.rule(
    "GC-24c", "GC-26", "GC-63", "GC-73", "GC-75", "GC-76", "GC-76a", "GC-77", "GC-79"
)(GroupSchedules.TestCase)
TestGroupSchedules.settings = settings(max_examples=40, stateful_step_count=30)
