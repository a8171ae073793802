"""Tests the checker of reasons: it finds each way to lose or invent one, and reports nothing in a correct history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE
from tests.simulation.checkers.reasons import Reasons
from tests.simulation.final import Final, Letter
from tests.simulation.history import Administered, FailureSeen
from tests.simulation.leader_events import ObjectMade, ReasonsGiven, ReasonsKept
from tests.simulation.made import TOPIC, Made, found
from tests.simulation.shape import REASONS_BYTES, SMALL_LIMITS

_HEADERS = {
    "topic": "t", "partition": "0", "offset": "3", "group": "g", "delivery.count": "2",
    "message": "Offset rejected by client.", "topic.id": "i",
}  # fmt: skip


class Story(Made):
    """A history of reasons, whose first object exists."""

    def __init__(self) -> None:
        super().__init__()
        self.makes()

    def makes(self) -> None:
        self.add(ObjectMade, 1, self.share, self.object_id, self.leader_epoch, self.generation)

    def gives(self, reason: str, *types: int, count: int = 1, back: tuple[bool, ...] = (), **done: Any) -> Story:
        """Give records 3 and 4 to a member, which acknowledges them with this reason."""
        self.locks("m", 3, 4, count)
        batch = (3, 4, types or (ACK_RELEASE,))
        request = self.asks("m", batch)
        self.add(ReasonsGiven, 1, request, self.share, self.state_epoch, self.object_id, ((batch, back, reason),))
        if done.get("code") != -1:
            self.does(request, **done)
        return self

    def holds(self, *failures: FailureSeen, start: int = 0) -> list[str]:
        """Return what the checker says of a coordinator that has these reasons."""
        self.history.add(replace(self.state(start), failures=failures))
        return found(Reasons(), self)

    def keeps(self, *failures: FailureSeen, start: int = 0) -> list[str]:
        """Return what it says of the leader's memory."""
        self.add(ReasonsKept, 1, self.share, self.state_epoch, self.object_id, start, start, failures)
        return found(Reasons(), self)


def test_a_reason_that_took_effect_is_kept_with_its_count_by_coordinator_and_leader() -> None:
    assert not Story().gives("a").holds((3, 4, 1, "a"))
    assert not Story().gives("a").keeps((3, 4, 1, "a"))
    assert Story().gives("a").holds() == ["SC-117"]
    assert Story().gives("a").keeps() == ["PL-942"]
    assert Story().gives("a").holds((3, 3, 1, "a")) == ["SC-117"]
    assert Story().gives("a").holds((3, 5, 1, "a")) == ["SC-117"], "record 5 is another's"
    assert Story().gives("a").holds((3, 4, 2, "a")) == ["SC-117"]
    assert Story().gives("a").holds((3, 4, 1, "b")) == ["SC-117"]


def test_the_highest_delivery_count_wins() -> None:
    assert not Story().gives("b").gives("a", count=2).holds((3, 4, 2, "a"))
    assert Story().gives("b").gives("a", count=2).holds((3, 4, 1, "b")) == ["SC-117"]
    assert not Story().gives("b", count=2, back=(True,)).holds((3, 4, 1, "b")), "a delivery that is taken back"
    assert Story().gives("b", count=3, back=(True,)).holds((3, 4, 1, "b")) == ["SC-117"]


def test_only_records_that_are_given_up_have_reasons() -> None:
    assert not Story().gives("a", ACK_REJECT, ACK_ACCEPT).holds((3, 3, 1, "a"))
    assert Story().gives("a", ACK_REJECT, ACK_ACCEPT).holds((3, 4, 1, "a")) == ["SC-117"]


def test_an_unknown_outcome_permits_both_and_a_refusal_none() -> None:
    for shown in ((), ((3, 4, 1, "a"),)):
        assert not Story().gives("a", code=-1).holds(*shown), "no result"
        assert not Story().gives("a", code=7).holds(*shown), "a result that proves nothing"
    assert not Story().gives("a", code=42).holds()
    assert Story().gives("a", code=42).holds((3, 4, 1, "a")) == ["SC-117"]


def test_a_reason_ends_with_its_record() -> None:
    assert not Story().gives("a").holds((4, 4, 1, "a"), start=4)
    assert Story().gives("a").holds((3, 4, 1, "a"), start=4) == ["SC-117"]
    assert Story().gives("a").keeps((3, 4, 1, "a"), start=4) == ["PL-942"]
    assert Story().gives("a").holds((3, 3, 1, "a"), (4, 4, 1, "a")) == ["SC-117"], "equal neighbours are one range"


def test_a_new_object_knows_what_was_stored_before_it_and_an_older_one_need_not() -> None:
    story = Story().gives("a")
    story.successor()
    story.makes()
    assert not story.keeps((3, 4, 1, "a"))
    assert story.keeps() == ["PL-942"]
    story = Story()
    story.successor()
    story.makes()
    story.gives("a")
    story.object_id = 1
    assert not story.keeps()


def test_a_deleted_state_has_lost_its_reasons() -> None:
    story = Story().gives("a")
    story.answered("Delete")
    assert not story.holds()


def test_what_is_kept_is_bounded_and_only_beyond_the_bound_it_may_be_cut() -> None:
    text = "y" * 700
    for reason, shown in ((text, ("y" * 17 + "…",)), (text, ()), ("a", ("a",))):
        story = Story().gives(reason).gives(reason, count=2)
        story.final = Final(pressures=(SMALL_LIMITS,))
        assert not story.holds(*((3, 4, 2, one) for one in shown))
    story = Story().gives("a")
    story.final = Final(pressures=(SMALL_LIMITS,))
    assert story.holds() == ["SC-117"], "one byte is not beyond the bound"
    story = Story().gives(text).gives("z" * 900, count=2)
    story.final = Final(pressures=(SMALL_LIMITS,))
    assert len(text) + 900 > REASONS_BYTES
    assert story.holds((3, 3, 1, text), (4, 4, 2, "z" * 900)) == ["SC-117"]


def letter(reason: str = "") -> Letter:
    texts = {"reason": reason, **_HEADERS} if reason else _HEADERS
    labels = tuple((f"__dlq.errors.{name}", text.encode()) for name, text in texts.items())
    return Letter(0, 0, b"g:t:0:3", None, labels)


def test_a_letter_has_the_reason_of_its_record() -> None:
    def story(said: str, **done: Any) -> Story:
        made = Story()
        made.add(Administered, "CreateTopics", "t", TOPIC, "")
        made.gives("a", ACK_REJECT, **done)
        made.writes(0)
        made.final = Final(letters=(letter(said),))
        return made

    assert not found(Reasons(), story("a"))
    assert found(Reasons(), story("")) == ["PL-943"]
    assert found(Reasons(), story("b")) == ["PL-943"]
    assert not found(Reasons(), story("", code=7))
    assert not found(Reasons(), story("a", code=7))
