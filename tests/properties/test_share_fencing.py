"""Table 2.3 against an oracle, over random histories: which requests are accepted or fenced, and which values never
decrease."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.errors import NONE, KafkaError
from kip932.failures import Failure
from kip932.state_batches import NO_STATS, StateBatch
from kip932.state_values import DeleteState, InitializeState, ReadState, ReadSummary, StateCommand, WriteState
from tests.support.share_state import KEY, TOPIC, Driver

_EPOCH = st.integers(-1, 4)
_GENERATION = st.integers(0, 2)
_BATCH = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 30),
    st.integers(-1, 5),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(-1, 3),
)
_COMMAND: st.SearchStrategy[StateCommand] = st.one_of(
    st.builds(InitializeState, st.just(KEY), _EPOCH, st.integers(-1, 20)),
    st.builds(ReadState, st.just(KEY), _EPOCH, _GENERATION),
    st.builds(
        WriteState,
        st.just(KEY),
        _EPOCH,
        _EPOCH,
        _GENERATION,
        st.integers(-1, 20),
        st.integers(-1, 9),
        st.lists(_BATCH, max_size=2).map(tuple),
        st.just(NO_STATS),
        st.lists(st.builds(Failure, *[st.integers(-1, 9)] * 3, st.just("x")), max_size=1).map(tuple),
        st.none(),
    ),
    st.builds(DeleteState, st.just(KEY), _EPOCH),
    st.just(ReadSummary(KEY)),
)


@dataclass
class Oracle:
    """The table's results, derived from accepted requests alone."""

    leader: tuple[int, int] | None = None  # the largest accepted (leader epoch, generation); None: no state
    state_epoch: int = -1
    topic_known: bool = True

    def expected(self, command: StateCommand) -> int:
        if isinstance(command, WriteState) and any(map(self._impossible, command.batches)):
            return 42
        if isinstance(command, WriteState) and any(not 0 <= one[0] <= one[1] or one[2] < 0 for one in command.failures):
            return 42
        if self._negative(command) or (self.leader is None and isinstance(command, ReadState | WriteState)):
            return 42
        if self.leader is not None and self._fenced(command, self.leader):
            return 74
        if (
            self.leader is not None
            and isinstance(command, InitializeState | WriteState | DeleteState)
            and -1 != command.state_epoch < self.state_epoch
        ):
            return 124
        return NONE if self.topic_known else 3

    def accept(self, command: StateCommand) -> None:
        if isinstance(command, DeleteState):
            self.leader, self.state_epoch = None, -1
        elif isinstance(command, InitializeState):
            self.leader = self.leader or (0, 0)
            self.state_epoch = max(self.state_epoch, command.state_epoch)
        elif isinstance(command, ReadState):
            self.leader = command.leader_epoch, command.generation

    @staticmethod
    def _impossible(batch: StateBatch) -> bool:
        return batch.last_offset < batch.first_offset or batch.delivery_state == 1 or batch.delivery_count < 0

    @staticmethod
    def _negative(command: StateCommand) -> bool:
        if isinstance(command, WriteState):
            return min(command.leader_epoch, command.state_epoch) < 0
        if isinstance(command, ReadState):
            return command.leader_epoch < 0
        return isinstance(command, InitializeState) and command.state_epoch < 0

    @staticmethod
    def _fenced(command: StateCommand, leader: tuple[int, int]) -> bool:
        return isinstance(command, ReadState | WriteState) and leader > (command.leader_epoch, command.generation)


@pytest.mark.rule(
    "SC-22", "SC-23", "SC-24", "SC-25", "SC-26", "SC-28", "SC-29", "SC-29a", "SC-30", "SC-31", "SC-43", "SC-27"
)
@pytest.mark.rule("SC-33", "SC-34", "SC-40", "SC-41")
@settings(max_examples=300)
@given(st.lists(st.one_of(_COMMAND, st.sampled_from(["restart", "topic"])), max_size=30), st.integers(0, 3))
def test_every_request_is_answered_as_the_table_says(steps: list[StateCommand | str], updates: int) -> None:
    driver, oracle = Driver(updates), Oracle()
    for step in steps:
        if step == "restart":
            driver.shard = driver.replayed()
            continue
        if isinstance(step, str):
            oracle.topic_known = not oracle.topic_known
            driver.metadata.topics = {TOPIC: 10} if oracle.topic_known else {}
            continue
        before, position = driver.shard.state(KEY), len(driver.log)
        try:
            driver.run(step)
            code = NONE
        except KafkaError as error:
            code = error.code
        assert code == oracle.expected(step)
        after = driver.shard.state(KEY)
        if code != NONE:
            assert (after, len(driver.log)) == (before, position)
            continue
        oracle.accept(step)
        assert (after is None) == (oracle.leader is None)
        if isinstance(step, WriteState):
            assert before is not None
            assert after is not None
            assert after.start_offset == max(before.start_offset, step.start_offset)
            assert (after.state_epoch, after.leader_epoch, after.fence) == (
                before.state_epoch,
                before.leader_epoch,
                before.fence,
            )
