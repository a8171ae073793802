"""When a consumer without records checks the cluster, what it logs once, and the wording."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sharegroups.connection.core.stall_diagnosis import (
    EXAMINE_AFTER_MAX_S,
    EXAMINE_AFTER_S,
    LEADERLESS,
    REPEAT_S,
    UNKNOWN,
    UNREACHABLE,
    StallTimer,
    Trouble,
)

DOWN = Trouble(UNREACHABLE, "a:1", detail="down")
AGAIN = Trouble(UNREACHABLE, "a:1", detail="down!")
NO_TLS = Trouble(UNREACHABLE, "a:1", detail="x (it closed the new connection at once; if it serves TLS, …)")
NOPE = Trouble(UNKNOWN, "a:1", ("nope",))


def test_it_checks_after_a_silence_that_grows_up_to_a_bound() -> None:
    lookout, now_s, silences = StallTimer(100.0), 100.0, []
    for _ in range(7):
        silences.append(lookout.due_s - now_s)
        now_s = lookout.due_s
        lookout.examined(None, now_s)
    assert silences[:4] == [EXAMINE_AFTER_S, EXAMINE_AFTER_S * 2, EXAMINE_AFTER_S * 4, EXAMINE_AFTER_S * 8]
    assert silences[-1] == EXAMINE_AFTER_MAX_S


def test_a_failure_ends_a_long_silence_soon_and_is_reported_once() -> None:
    lookout = StallTimer(0.0)
    for now_s in (2.0, 6.0, 14.0, 30.0):
        lookout.examined(None, now_s)
    assert lookout.due_s == 30.0 + EXAMINE_AFTER_MAX_S
    lookout.doubted(40.0)
    assert lookout.due_s == 40.0 + EXAMINE_AFTER_S
    lookout.doubted(41.0)
    assert lookout.due_s == 40.0 + EXAMINE_AFTER_S, "failures do not put it off"
    assert lookout.examined(DOWN, 42.0) is DOWN
    lookout.examined(DOWN, 46.0)
    due_s = lookout.due_s
    lookout.doubted(46.5)
    assert lookout.due_s == due_s, "a reported cause must not be examined again"


def test_each_cause_is_reported_once_and_again_when_it_changes_or_comes_back() -> None:
    lookout = StallTimer(0.0)
    reported = [lookout.examined(found, 1.0) for found in (DOWN, AGAIN, NOPE, NOPE, None, NOPE)]
    assert reported == [DOWN, None, NOPE, None, None, NOPE]


@pytest.mark.rule("CL-182")
def test_a_loss_that_lasts_is_reported_again_at_a_bounded_rate_with_how_long_it_has_lasted() -> None:
    lookout, now_s = StallTimer(0.0), 0.0
    reports: list[tuple[float, Trouble]] = []
    while now_s < 10 * REPEAT_S:
        now_s = lookout.due_s
        if (found := lookout.examined(AGAIN if reports else DOWN, now_s)) is not None:
            reports.append((now_s, found))
    assert reports[0] == (EXAMINE_AFTER_S, DOWN)
    assert [found.lasted_s for _, found in reports] == [at_s - EXAMINE_AFTER_S for at_s, _ in reports]
    pauses = [after - before for (before, _), (after, _) in pairwise(reports)]
    assert len(pauses) >= 5
    assert all(REPEAT_S <= pause <= REPEAT_S + EXAMINE_AFTER_MAX_S for pause in pauses)
    assert reports[1][1].text().endswith(f"bootstrap.servers. This has lasted for {reports[1][1].lasted_s:.0f} s.")
    assert lookout.examined(NOPE, now_s + 1) is NOPE, "another cause has lasted for no time yet"


@pytest.mark.rule("CL-182")
def test_a_failed_handshake_is_another_cause_than_silence_and_its_advice_is_about_tls() -> None:
    lookout = StallTimer(0.0)
    assert [lookout.examined(found, 2.0) for found in (DOWN, NO_TLS, NO_TLS, DOWN)] == [DOWN, NO_TLS, None, DOWN]
    text = NO_TLS.text()
    assert text.startswith(f"no connection to the cluster at a:1 ({NO_TLS.detail}). ")
    assert text.endswith(
        "Something listens there: check the client's security.protocol and ssl.*, and bootstrap.servers."
    )
    assert "sharegroups up" not in text


def test_records_make_it_forget_what_it_reported() -> None:
    lookout = StallTimer(0.0)
    assert lookout.examined(DOWN, 2.0) is DOWN
    lookout.heard(10.0)
    assert lookout.due_s == 10.0 + EXAMINE_AFTER_S
    assert lookout.examined(DOWN, 12.0) is DOWN


def test_the_return_of_a_lost_cluster_is_reported_once_and_a_second_loss_again() -> None:
    lookout = StallTimer(0.0)
    assert lookout.answered(1.0) is None, "nothing was reported"
    assert lookout.examined(DOWN, 2.0) is DOWN
    lookout.heard(3.0)  # a record from a buffer is not a response
    assert lookout.examined(DOWN, 5.0) is DOWN
    assert lookout.answered(42.0) == 40.0
    assert lookout.due_s == 42.0 + EXAMINE_AFTER_S
    assert lookout.answered(43.0) is None
    assert lookout.examined(NOPE, 44.0) is NOPE
    assert lookout.answered(45.0) is None, "a topic that is not there is no lost cluster"
    assert lookout.examined(DOWN, 46.0) is DOWN


def test_the_words_name_what_was_found_where_and_what_to_try() -> None:
    for words in ("no cluster answers at a:1 (down)", "sharegroups up", "correct bootstrap.servers"):
        assert words in DOWN.text()
    for words in ("topic 'nope' does not exist", "a:1", "topics create nope", "correct the name given to subscribe()"):
        assert words in NOPE.text()
    many = Trouble(UNKNOWN, "a:1", tuple("abcdefg")).text()
    assert many.startswith("topics 'a', 'b', 'c', 'd', 'e' and 2 more do not exist")
    assert "has no live leader for partition 0, 2." in Trouble(LEADERLESS, "a:1", ("t",), "0, 2").text()
    assert Trouble("X", "a:1", ("t",), "y").text() == "topic 't' at a:1: X: y"
