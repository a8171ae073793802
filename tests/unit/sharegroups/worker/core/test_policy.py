"""The outcome of a job, by how its handler ended and how many times its record was delivered."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroups.worker.core.policy import (
    DONE,
    Accept,
    Decision,
    Kind,
    Outcome,
    Reject,
    Release,
    Retry,
    Step,
    Verdict,
    check_outcomes,
    decide,
    described,
    reason_of,
    verdict_of,
)

FAILED = Verdict(Kind.FAILED, "ValueError: bad")
PLAIN = Retry(jitter=0)


class NotFoundError(LookupError):
    """An error class defined by a user."""


@pytest.mark.rule("CL-120")
@pytest.mark.parametrize(
    ("error", "outcomes", "kind"),
    [
        (ValueError("x"), {}, Kind.FAILED),
        (SystemExit(3), {}, Kind.FAILED),
        (KeyboardInterrupt(), {}, Kind.FAILED),
        (Accept(), {}, Kind.DONE),
        (Reject("no such order"), {}, Kind.REJECTED),
        (Release(delay=3), {}, Kind.RELEASED),
        (NotFoundError(), {LookupError: Reject}, Kind.REJECTED),
        (NotFoundError(), {LookupError: Reject, NotFoundError: Accept}, Kind.DONE),
        (NotFoundError(), {Exception: Reject, LookupError: Release(delay=5)}, Kind.RELEASED),
        (NotFoundError(), {NotFoundError: Retry(limit=2)}, Kind.FAILED),
        (ValueError(), {LookupError: Reject}, Kind.FAILED),
        (Reject("mine counts"), {Exception: Accept}, Kind.REJECTED),
    ],
)
def test_the_nearest_entry_decides(
    error: BaseException, outcomes: dict[type[BaseException], Outcome], kind: Kind
) -> None:
    assert verdict_of(error, outcomes).kind is kind


@pytest.mark.rule("CL-120")
def test_a_verdict_carries_delay_policy_reason_and_trace() -> None:
    assert verdict_of(NotFoundError(), {NotFoundError: Release(delay=5)}).delay == 5
    assert verdict_of(NotFoundError(), {NotFoundError: Release}).delay is None
    assert verdict_of(NotFoundError("a"), {NotFoundError: Retry(limit=2)}).retry == Retry(limit=2)
    assert verdict_of(ValueError("two\nlines"), {}, "trace") == Verdict(Kind.FAILED, "ValueError: two lines", "trace")


@pytest.mark.rule("CL-121")
def test_a_failure_waits_longer_each_time_up_to_the_maximum() -> None:
    waits = [decide(FAILED, count, PLAIN, 100, 0).delay for count in range(1, 9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert decide(FAILED, 2, Retry(jitter=0.5), 100, 1).delay == 1
    assert decide(FAILED, 3, PLAIN, 5, 0).log_text == "it is redelivered in 4.0 s"


@pytest.mark.rule("CL-128")
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (3599, "3599.0 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_399, "1 day"),
        (90_000, "1 day 1 h"),
        (273_600, "3 days 4 h"),
        (1e300, "1e+300 s"),
        (math.inf, "inf s"),
    ],
)
def test_a_long_delay_is_written_in_hours_and_days(seconds: float, text: str) -> None:
    released = Verdict(Kind.RELEASED, delay=seconds)
    assert decide(released, 1, PLAIN, 5, 0).log_text == f"it is redelivered in {text}"


@pytest.mark.rule("CL-121")
def test_the_last_try_rejects_and_the_groups_last_delivery_archives() -> None:
    limited = Retry(limit=3, jitter=0)
    assert decide(FAILED, 2, limited, 5, 0).step is Step.RELEASE
    assert decide(FAILED, 3, limited, 5, 0) == Decision(
        Step.REJECT, log_text="that was the last of 3 tries; it is rejected", reason="ValueError: bad"
    )
    last = decide(FAILED, 5, PLAIN, 5, 0)
    assert (last.step, last.delay) == (Step.ARCHIVE, 0.0), "a delay would only keep the dead record in flight"
    assert [step for step in Step if step.gives_up] == [Step.REJECT, Step.ARCHIVE]
    assert "archived" in last.log_text
    assert "archived" in decide(Verdict(Kind.RELEASED, delay=9), 5, PLAIN, 5, 0).log_text
    assert decide(Verdict(Kind.FAILED, retry=Retry(limit=1)), 1, PLAIN, 5, 0).step is Step.REJECT


@pytest.mark.rule("CL-120")
def test_the_other_ends() -> None:
    assert decide(DONE, 1, PLAIN, 5, 0) == Decision(Step.ACCEPT)
    assert decide(Verdict(Kind.REJECTED, "why"), 1, PLAIN, 5, 0).step is Step.REJECT
    assert decide(Verdict(Kind.RELEASED, delay=7), 1, PLAIN, 5, 0).delay == 7
    text = decide(Verdict(Kind.RELEASED), 1, PLAIN, 5, 0).log_text
    assert text == "it is redelivered at once, or after the group's back-off", "the leader decides"
    assert decide(Verdict(Kind.RELEASED, delay=0.0), 1, PLAIN, 5, 0).log_text == "it is redelivered at once"


@pytest.mark.rule("CL-121")
@given(
    retry=st.builds(
        Retry, st.none(), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1e6), st.floats(0, 1)
    ),
    count=st.integers(-5, 10**9), chance=st.floats(0, 1),
)  # fmt: skip
def test_a_delay_is_never_negative_nor_above_the_maximum(retry: Retry, count: int, chance: float) -> None:
    assert 0 <= retry.delay_of(count, chance) <= retry.maximum
    assert retry.delay_of(count, 1) <= retry.delay_of(count, 0) <= retry.delay_of(count + 1, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"limit": 0}, "limit is 0; expected at least 1"),
        ({"limit": 2.5}, "limit is 2.5"),
        ({"backoff": -1}, "backoff is -1"),
        ({"multiplier": 0.5}, "multiplier is 0.5"),
        ({"jitter": 2}, "jitter is 2; expected a number from 0 to 1"),
        ({"maximum": "60"}, "maximum is '60'"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Retry(**wrong)  # type: ignore[arg-type]


def test_wrong_outcomes_are_refused() -> None:
    with pytest.raises(ValueError, match="is not an exception class"):
        check_outcomes({"NotFoundError": Reject})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="NotFoundError is given 'reject'"):
        check_outcomes({NotFoundError: "reject"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="delay is -1"):
        Release(delay=-1)
    with pytest.raises(ValueError, match="delay is nan"):
        Release(delay=float("nan"))
    check_outcomes({NotFoundError: Reject("gone"), ValueError: Release, OSError: Retry()})


def test_an_exception_is_reported_in_one_short_line() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert described(ValueError()) == "ValueError"
    assert described(MuteError()) == "MuteError: (its text cannot be read: RuntimeError)"
    assert len(described(ValueError("x" * 10_000))) < 600


@pytest.mark.rule("CL-165")
def test_what_is_given_up_has_the_cause_as_its_reason_whatever_the_step() -> None:
    raised = Verdict(Kind.FAILED, "ValueError: bad", "trace", reason="mod.ValueError: bad\n  line")
    for count, step in ((1, Step.RELEASE), (3, Step.REJECT)):
        decision = decide(raised, count, Retry(limit=3), 5, 0)
        assert (decision.step, decision.reason) == (step, "mod.ValueError: bad\n  line")
    assert decide(raised, 5, PLAIN, 5, 0).reason == "mod.ValueError: bad\n  line"
    cut_short = decide(raised, 1, PLAIN, 5, 0).shortened(0.5)
    assert cut_short.reason == "mod.ValueError: bad\n  line"
    assert decide(Verdict(Kind.FAILED, "its process ended"), 1, PLAIN, 5, 0).reason == "its process ended"
    assert decide(verdict_of(Reject("no\naddress"), {}), 1, PLAIN, 5, 0).reason == "Reject: no address"
    assert decide(verdict_of(Release("not yet"), {}), 1, PLAIN, 5, 0).reason == "Release: not yet"
    mapped = verdict_of(NotFoundError("a"), {LookupError: Reject}, "trace", "NotFoundError: a\n  line 3")
    assert decide(mapped, 1, PLAIN, 5, 0).reason == "NotFoundError: a\n  line 3"
    assert decide(verdict_of(NotFoundError(), {LookupError: Accept}, "", "x"), 1, PLAIN, 5, 0).reason == ""
    assert decide(Verdict(Kind.REJECTED, "\x1b[31m\u202e"), 1, PLAIN, 5, 0).reason == "\\x1b[31m\\u202e"


@pytest.mark.rule("CL-165")
def test_a_reason_has_the_last_lines_of_the_traceback_that_fit() -> None:
    lines = [f"  line {number:04}" for number in range(1_000)]
    reason = reason_of("ValueError: " + "é" * 5_000, lines)
    first, *rest = reason.split("\n")
    assert first == "ValueError: " + "é" * 242 + "…"
    assert len(first.encode()) <= 500
    assert rest == lines[-len(rest) :]
    assert 1_024 - len(b"\n  line 0000") < len(reason.encode()) <= 1_024
    assert reason_of("E", []) == "E"
    assert reason_of("E", ["a", "x" * 2_000, "b"]) == "E\nb", "lines are whole, and none is left out in between"


@given(st.text(), st.lists(st.text(), max_size=8), st.integers(1, 40))
def test_no_text_makes_a_reason_too_long_or_one_that_cannot_be_sent(first: str, lines: list[str], times: int) -> None:
    assert len(reason_of(first * times, [line * times for line in lines]).encode()) <= 1_024
