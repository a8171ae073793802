"""The story of a run: what it names, and that it omits the rest."""

from __future__ import annotations

import pytest

from tests.simulation import history as h
from tests.simulation import leader_events
from tests.simulation.checkers import Violation
from tests.simulation.story import Focus, account, spans
from tests.simulation.words import Words

TOPIC, OTHER = "a1" * 16, "b2" * 16
SHARE = h.Share("g", TOPIC, 0)


def acquired(at_ms: int, first: int, last: int, member: str = "member-one", share: h.Share = SHARE) -> h.Acquired:
    return h.Acquired(at_ms, "n1", 3, 7, share, member, 2, 5, first, last, 1, 4_000, ((first, last),), 0, 0, last + 1)


def delivered(at_ms: int, offset: int, topic_id: str = TOPIC) -> h.Delivered:
    return h.Delivered(at_ms, "consumer0", "member-one", "g", h.Place(topic_id, 0, offset), 1, b"v%d" % offset)


EVENTS: list[h.Event] = [
    h.PhaseBegan(0, "world", "work"),
    h.Produced(10, "producer0", b"v3", h.Place(TOPIC, 0, 3)),
    acquired(20, 0, 9),
    delivered(30, 3),
    delivered(31, 4),
    delivered(32, 3, OTHER),
    acquired(40, 3, 3, share=h.Share("other", TOPIC, 0)),
    h.FaultStruck(50, "world", "the store restarts"),
    h.StateSeen(60, "n1", SHARE, 1, 2, 0, 0, ((0, 9, 0, 1),)),
    acquired(70, 3, 5, "member-two"),
    h.ProduceSent(80, "producer0", "jobs", b"v9"),
]


def story_of(violation: Violation, before: int = 40) -> str:
    return account(EVENTS, violation, Words({TOPIC: "jobs"}), before)


def test_the_life_of_the_record_in_question_is_shown_and_nothing_else() -> None:
    first, second = EVENTS[2], EVENTS[9]
    text = story_of(Violation("INV-4", "acquired again", (first, second)))
    assert text.splitlines()[0] == "-- around INV-4: acquired again"
    marked = [line.startswith(">>") for line in text.splitlines()[1:]]
    assert marked == [False, False, True, False, False, False, True]
    assert "jobs/0@3" in text
    assert "g:jobs/0 0-9 x1 to member-o" in text
    assert "** the store restarts" in text
    assert "v9" not in text
    assert "other:" not in text


def test_only_the_last_events_are_shown() -> None:
    text = story_of(Violation("INV-4", "acquired again", (EVENTS[9],)), before=2)
    assert "earlier events of the same records left out" in text
    assert len(text.splitlines()) <= 2 + 2 + 5 + 1


def test_records_are_what_all_events_have_in_common() -> None:
    focus = Focus.of(Violation("INV-4", "", (acquired(1, 0, 9), acquired(2, 3, 5), delivered(3, 4))))
    assert focus.spans == {(TOPIC, 0, 4, 4)}
    apart = Focus.of(Violation("INV-4", "", (acquired(1, 0, 2), acquired(2, 3, 5))))
    assert len(apart.spans) == 2


def test_a_violation_of_a_group_is_explained_by_its_group() -> None:
    seen = h.GroupSeen(1, "n1", "g", 3, 3, (("m", 3),), (("m", ((TOPIC, 0),)),))
    focus = Focus.of(Violation("INV-16", "", (seen,)))
    assert focus.matters(h.GroupSeen(9, "n1", "g", 4, 3, (), ()))
    assert not focus.matters(h.GroupSeen(9, "n1", "h", 4, 3, (), ()))
    assert not focus.matters(delivered(3, 1))


def test_a_violation_without_events_is_explained_by_what_the_world_did() -> None:
    assert [line[14:].split(maxsplit=1) for line in story_of(Violation("INV-19", "hangs")).splitlines()[1:]] == [
        ["world", "-- work"],
        ["world", "** the store restarts"],
    ]


SAID = [
    (EVENTS[0], "-- work"),
    (EVENTS[1], "learns that b'v3' is at jobs/0@3"),
    (h.ProduceFailed(1, "p", b"v", "TimeoutError"), "gives up b'v': TimeoutError"),
    (h.Settled(1, "c", "member-one", "g", h.Place(TOPIC, 0, 3), 1, ""), "learns of accept of jobs/0@3 in g"),
    (h.ClientFailed(1, "c", "poll", "boom"), "poll fails: boom"),
    (h.LagSeen(1, "c", SHARE, 4, 2), "sees g:jobs/0 start at 4, lag 2"),
    (h.Administered(1, "c", "DeleteTopics", "jobs", "", "", 0), "DeleteTopics jobs"),
    (h.SessionAsked(1, "n", 3, 8, "ShareFetch", "g", "m", "sim:1", 2, ((TOPIC, 0, (3, 5, (1, 3))),)), "3-5 accept+rej"),
    (h.SessionAnswered(1, "n", 3, 8, 500, "ShareFetch", "g", "m", 2, 122), "asked at 0.500, epoch 2, error 122"),
    (h.AckAnswered(1, "n", 3, 8, 1, SHARE, "m", 2, 5, ((3, 5, (2,)),), 0), "g:jobs/0 3-5 release of m (leader epoch 2"),
    (h.SessionEnded(1, "n", 3, "g", "m"), "ends the share session of m (g)"),
    (
        leader_events.Locked(1, "n", 3, 8, SHARE, "m", 2, 1, 1, 5, 3, 4, 2, 900, 5, 0, 2, 9, 2, 1),
        "locks g:jobs/0 3-4 x2 for m in 8",
    ),
    (
        leader_events.AckDone(1, "n", 3, 8, SHARE, "m", 2, 1, 5, ((3, 3, (1,)),), 0, True, 700, 4, 3, 900, 5),
        "3 accept of m, persis",
    ),
    (leader_events.MemoryWrong(1, "n", 3, SHARE, 5, 17, "offset 17: no"), "has g:jobs/0 wrong: offset 17: no"),
    (leader_events.GivenBack(1, "n", 3, SHARE, 5, "m", None), "takes back g:jobs/0 all from m"),
    (h.LimitsSeen(1, "n", 3, "g", 5, 900, 100), "#3 takes for g: limit 5, lock 900 ms, window 100"),
    (h.HeartbeatAnswered(1, "n", 3, "g", "m", 1, 2, ((TOPIC, 0),), 0), "epoch 1 -> 2: jobs/0"),
    (h.StateAnswered(1, "n", 3, "Write", SHARE, 2, 1, 4, ((4, 6, 0, 2),), 0), "start 4, 4-6 available x2"),
    (h.ProcessChanged(1, "n", "killed", 3), "== killed (#3)"),
    (h.FaultStruck(1, "w", "a cut", True), "** over: a cut"),
    (EVENTS[8], "holds g:jobs/0, state epoch 1"),
    (h.GroupSeen(1, "n", "g", 3, 2, (("m", 3),), (("m", ()),)), "members m at 3; target m: nothing"),
    (h.SizesSeen(1, "n", (("queue", 3, 10),)), "sizes queue 3/10"),
]


@pytest.mark.parametrize(("event", "said"), SAID, ids=[type(event).__name__ for event, _ in SAID])
def test_every_kind_of_event_has_words(event: h.Event, said: str) -> None:
    assert said in Words({TOPIC: "jobs"}).of(event)


def test_long_lists_are_cut() -> None:
    sizes = tuple((f"q{number}", 0, 1) for number in range(9))
    assert Words().of(h.SizesSeen(0, "n", sizes)).endswith("q5 0/1 and 3 more")


def test_records_of_an_event_are_its_ranges() -> None:
    assert list(spans(EVENTS[8])) == [(TOPIC, 0, 0, 9)]
    assert list(spans(EVENTS[0])) == []
