"""A function that returns tokens is called where one is needed, once at a time, and not waited for without need
(CL-158)."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.connection import token_function
from sharegroups.connection.token_function import PAUSE_S, RENEWED_AFTER, TokenFunction, seconds_left

pytestmark = pytest.mark.asyncio

AT = "node:1"


class Clock:
    """Both clocks of the module, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(token_function, "time", clock)
    return clock


def tokens(function: Callable[[], Any]) -> TokenFunction:
    return TokenFunction(function, lambda token: (("authorization", token),))


def jwt(exp: object) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": exp}).encode()).decode().rstrip("=")
    return f"h.{claims}.s"


def of(source: TokenFunction) -> str:
    return dict(source()).get("authorization", "")


@pytest.mark.rule("CL-158")
async def test_the_first_calls_wait_for_one_call_of_the_function() -> None:
    called = 0

    def function() -> str:
        nonlocal called
        called += 1
        time.sleep(0.01)
        return f"token-{called}"

    source = tokens(function)
    await asyncio.gather(*(source.prepare(AT) for _ in range(5)))
    assert (of(source), called) == ("token-1", 1)
    await source.prepare(AT)
    assert called == 1  # the token has no known expiry


@pytest.mark.rule("CL-158")
async def test_a_token_is_replaced_in_the_background_before_it_ends(clock: Clock) -> None:
    given = [jwt(clock.now_s + 100), jwt(clock.now_s + 300)]
    source = tokens(lambda: given.pop(0))
    await source.prepare(AT)
    first = of(source)
    clock.now_s += RENEWED_AFTER * 100 - 1
    await source.prepare(AT)
    assert len(given) == 1
    clock.now_s += 2
    await source.prepare(AT)
    for _ in range(500):
        if of(source) != first:
            break
        await asyncio.sleep(0.01)
    assert (of(source) != first, given) == (True, [])


@pytest.mark.rule("CL-158")
async def test_a_refused_token_is_replaced_once_and_one_got_for_it_is_refused_for_good(clock: Clock) -> None:
    given = iter(range(1, 10))
    source = tokens(lambda: f"token-{next(given)}")
    await source.prepare(AT)
    assert source.refused()  # a new token may be accepted
    await source.prepare(AT)
    assert of(source) == "token-1"  # not called twice within a second
    clock.now_s += PAUSE_S
    await source.prepare(AT)
    assert of(source) == "token-2"
    assert not source.refused()
    clock.now_s += 60
    await source.prepare(AT)
    clock.now_s += 60
    assert source.refused()


@pytest.mark.rule("CL-158")
@pytest.mark.parametrize(
    ("found", "said"),
    [
        (OSError("no network"), "it raised OSError: no network"),
        (SystemExit(3), "it raised SystemExit: 3"),
        (None, "it returned NoneType; expected a str that is not empty"),
        ("", "it returned str; expected a str that is not empty"),
    ],
)
async def test_without_a_token_a_call_is_refused_with_the_reason(
    caplog: pytest.LogCaptureFixture, clock: Clock, found: object, said: str
) -> None:
    def function() -> object:
        if isinstance(found, BaseException):
            raise found
        return found

    source = tokens(function)
    for _ in range(2):
        with pytest.raises(TransportError, match=said) as refused:
            await source.prepare(AT)
        assert refused.value.status is TransportStatus.UNAUTHENTICATED
        assert refused.value.refusal.startswith("the call was not sent"), "no node refused it"
        clock.now_s += PAUSE_S
    assert len([line for line in caplog.messages if said in line]) == 1


@pytest.mark.rule("CL-158")
async def test_a_function_that_fails_or_hangs_leaves_the_last_token(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_function, "WAIT_S", 0.02)
    hangs, called = threading.Event(), 0

    def function() -> str:
        nonlocal called
        called += 1
        if called > 1:
            hangs.wait(30)
        return f"token-{called}"

    source = tokens(function)
    await source.prepare(AT)
    for _ in range(3):
        source.refused()
        clock.now_s += PAUSE_S
        await source.prepare(AT)
    assert (of(source), called) == ("token-1", 2)  # no second thread beside the one that hangs
    hangs.set()
    for _ in range(500):
        if of(source) == "token-2":
            break
        await asyncio.sleep(0.01)
    assert of(source) == "token-2"


@pytest.mark.rule("CL-158")
async def test_a_failure_that_comes_back_after_a_success_is_logged_again(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    """Each outage of what issues the tokens has its line, though the reason is the same."""
    returned: list[object] = []
    source = tokens(lambda: returned[0])
    for found in ("", "", "a-token", "", "", "b-token"):
        returned[:] = [found]
        source.refused()
        clock.now_s += PAUSE_S
        if found or of(source):
            await source.prepare(AT)
        else:
            with pytest.raises(TransportError):
                await source.prepare(AT)
    assert of(source) == "b-token"
    assert len([line for line in caplog.messages if "it returned str" in line]) == 2


async def test_only_a_jwt_says_when_it_ends() -> None:
    assert seconds_left(jwt(110), 100.0) == 10.0
    for token in ("opaque", "a.b.c", "a..c", jwt("soon"), jwt(None)):
        assert seconds_left(token, 100.0) is None
