"""A batch of gRPC operations is freed however it ends, and its caller gets the same outcome as from grpcio (CM-99)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from grpc._cython import cygrpc

from shard_runtime.rpc import grpc_server
from shard_runtime.rpc.grpc_server import Batch

pytestmark = pytest.mark.asyncio


@dataclass
class Grpcio:
    """Stands in for grpcio's coroutine: it starts a batch, waits for the core, and then frees the operations."""

    refuses: bool = False
    fails_to_free: bool = False
    future: Any = None
    freed: list[str] = field(default_factory=list)

    async def execute(self, call: Any, operations: tuple[Any, ...], loop: Any) -> None:
        if self.refuses:
            raise RuntimeError("the core did not take it")
        self.future = loop.create_future()
        await self.future
        self.freed += operations
        if self.fails_to_free:
            raise UnicodeError("the bytes read are not text")

    def begin(self) -> asyncio.Future[None]:
        return Batch(self.execute, None, ("read",), asyncio.get_running_loop()).done


@pytest.mark.rule("CM-99")
async def test_a_batch_that_succeeds_is_freed_before_its_caller_goes_on() -> None:
    grpcio = Grpcio()
    done = grpcio.begin()
    await asyncio.sleep(0)
    assert not done.done()
    assert not grpcio.future.cancelled()
    grpcio.future.set_result(None)
    assert grpcio.freed == ["read"]
    await done


@pytest.mark.rule("CM-99")
async def test_a_batch_that_fails_is_freed_and_its_caller_gets_the_failure() -> None:
    grpcio = Grpcio()
    done = grpcio.begin()
    grpcio.future.set_exception(ConnectionError("reset"))
    assert grpcio.freed == ["read"]
    with pytest.raises(ConnectionError, match="reset"):
        await done


@pytest.mark.rule("CM-99")
@pytest.mark.parametrize("end", ["set_result", "set_exception"])
async def test_a_batch_whose_caller_was_cancelled_is_freed_when_the_core_has_finished_it(end: str) -> None:
    grpcio = Grpcio()

    async def caller() -> None:
        await grpcio.begin()

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert grpcio.freed == [], "the core still writes to it"
    assert not grpcio.future.cancelled(), "grpcio would drop the batch"
    getattr(grpcio.future, end)(ConnectionError("reset") if end == "set_exception" else None)
    assert grpcio.freed == ["read"]


@pytest.mark.rule("CM-99")
async def test_an_error_of_freeing_is_the_callers() -> None:
    grpcio = Grpcio(fails_to_free=True)
    done = grpcio.begin()
    grpcio.future.set_result(None)
    with pytest.raises(UnicodeError, match="not text"):
        await done


@pytest.mark.rule("CM-99")
async def test_a_batch_that_the_core_does_not_take_is_reported_at_once() -> None:
    with pytest.raises(RuntimeError, match="did not take"):
        Grpcio(refuses=True).begin()


async def test_what_another_event_loops_thread_reads_is_finished_on_the_batchs_own() -> None:
    batch = Batch(Grpcio().execute, None, ("read",), asyncio.get_running_loop())
    threads: list[int] = []
    finished = asyncio.Event()

    def finish(word: str) -> None:
        assert word == "here"
        threads.append(threading.get_ident())
        finished.set()

    async def elsewhere() -> None:
        batch.call_soon_threadsafe(finish, "here")

    batch.call_soon_threadsafe(finish, "here")
    assert len(threads) == 1, "on its own thread it does not wait for a turn"
    finished.clear()
    await asyncio.to_thread(asyncio.run, elsewhere())
    await finished.wait()
    assert threads == [threading.get_ident()] * 2


async def test_it_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    grpcio = Grpcio()
    monkeypatch.setattr(cygrpc, grpc_server.EXECUTE_BATCH, grpcio.execute)
    grpc_server.replace_batches()
    installed: Callable[..., asyncio.Future[None]] = getattr(cygrpc, grpc_server.EXECUTE_BATCH)
    grpc_server.replace_batches()
    assert getattr(cygrpc, grpc_server.EXECUTE_BATCH) is installed
    done = installed(None, ("read",), asyncio.get_running_loop())
    grpcio.future.set_result(None)
    await done
    assert grpcio.freed == ["read"]
