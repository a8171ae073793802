"""Laws of a transaction's record, for all orders of calls by producers and leaders, time-outs and retries."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from transaction_coordinator.core.transaction import (
    Fate,
    Identity,
    State,
    Transaction,
    ended,
    expired,
    fate,
    finished,
    initialised,
    joined,
)

P = TopicIdPartition(b"p" * 16, 0)
_STEPS = st.lists(
    st.tuples(st.sampled_from(["new", "go on", "join", "commit", "abort", "finish", "time"]), st.integers(0, 5)),
    max_size=60,
)


class Story:
    """One record, the identities it has given out, and their outcomes."""

    def __init__(self) -> None:
        self.known: Transaction | None = None
        self.given_out = [Identity(1, 0)]
        self.outcomes: dict[Identity, bool] = {}
        self.confirmed: set[Identity] = set()
        self.now_ms = 0

    def take(self, what: str, which: int) -> None:
        """Perform a producer's step under an identity given out earlier, perhaps an old one, as in a late message."""
        who, known = self.given_out[-1 - which % len(self.given_out)], self.known
        match what:
            case "new":
                self.known = initialised(known, None, 10, 1)
            case "go on":
                self.known = initialised(known, who, 10, 1)
            case "join":
                self.known = joined(known, who, [P], self.now_ms)
                assert who not in self.outcomes, "a batch joined what had ended"
                self.confirmed.add(who)
            case "commit" | "abort":
                commit = what == "commit"
                self.known = ended(known, who, [P] if who in self.confirmed else [], commit=commit)
                assert self.outcomes.setdefault(who, commit) is commit
            case "finish":
                self.known = finished(known, who, 1)
            case _:
                self.now_ms += which
                self.known = expired(known, self.now_ms)

    def check(self, what: str, before: Transaction | None) -> None:
        """Check the laws after a step that started from the record `before`."""
        known = self.known
        if known is None:
            return
        if known.decided:
            assert self.outcomes.setdefault(known.identity, known.commits) is known.commits
        for past in known.ended:
            assert self.outcomes.setdefault(past.identity, past.committed) is past.committed
            assert fate(known, past.identity) is (Fate.COMMITTED if past.committed else Fate.ABORTED)
        if known.identity != self.given_out[-1]:
            assert known.identity.epoch == self.given_out[-1].epoch + 1, "epochs go up by one"
            assert known.state is State.EMPTY
            self.given_out.append(known.identity)
        if before is not None and before.decided and known is not before:
            assert what == "finish", "a decision waits for its markers"


@pytest.mark.rule("CM-152", "CM-153", "CM-154", "CM-156")
@given(_STEPS)
def test_an_outcome_never_changes_and_an_epoch_is_used_by_one_producer(steps: list[tuple[str, int]]) -> None:
    story = Story()
    for what, which in steps:
        before = story.known
        with suppress(KafkaError):
            story.take(what, which)
        story.check(what, before)
