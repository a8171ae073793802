"""A store call gets one reply, and none once its caller has given up."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.redis.store_calls import AnsweredCall, Verdict


def test_a_call_that_fails_notifies_its_caller_and_only_the_first_answer_counts() -> None:
    async def story() -> None:
        call: AnsweredCall[int] = AnsweredCall("k")
        call.fail(StoreUnavailableError("first"))
        call.fail(StoreUnavailableError("second"))
        assert call.succeed(1) is Verdict.DONE
        with pytest.raises(StoreUnavailableError, match="first"):
            await call.answer

    asyncio.run(story())


def test_a_call_whose_caller_went_takes_any_answer_quietly() -> None:
    async def story() -> None:
        call: AnsweredCall[int] = AnsweredCall("k")
        call.answer.cancel()
        call.fail(StoreUnavailableError("too late"))
        assert call.succeed(1) is Verdict.DONE
        assert call.answer.cancelled()

    asyncio.run(story())
