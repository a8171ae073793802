"""Workers for tests, run as `sharegroups worker tests.integration.worker.shop:NAME`. Each job prints what it did.

The environment gives the cluster and the group. Values are JSON objects whose keys say how a job ends.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import time
from multiprocessing.connection import Connection
from typing import Any

from sharegroups import Producer
from sharegroups.worker import Reject, Release, Retry, Worker, current_job

QUICK = Retry(backoff=0.1, maximum=0.4)


class NotFoundError(LookupError):
    """Mapped to Reject."""


def make() -> Worker:
    """Make a worker for the cluster and group that the test gave."""
    return Worker(
        bootstrap_servers=os.environ.get("SHOP_BOOTSTRAP", "127.0.0.1:7932"),
        group_id=os.environ.get("SHOP_GROUP", "shop"),
        concurrency=2,
    )


def topic(kind: str) -> str:
    """Return this test's topic for handlers of this kind."""
    return f"{os.environ.get('SHOP_TOPIC', 'shop')}-{kind}"


def do(order: dict[str, Any]) -> None:
    """Report the run, and end as `order` says."""
    info = current_job()
    say(n=order.get("n"), count=info.delivery_count)
    for name, deed in DEEDS.items():
        if name in order:
            deed(order[name])


def say(**what: Any) -> None:
    """Write a line in one piece, since other threads and processes write to the same file."""
    os.write(1, json.dumps(what).encode() + b"\n")


def _raise(error: BaseException) -> None:
    raise error


def _fork(seconds: float) -> None:
    """Start a process that outlives this one."""
    helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(seconds,))
    helper.start()
    say(helper=helper.pid)


def _torn(seconds: float) -> None:
    """Die while writing a result; a forked process keeps the pipe open."""
    _fork(seconds)
    (work,) = (one for one in gc.get_objects() if isinstance(one, Connection) and one.readable and one.writable)
    os.write(work.fileno(), (1_000_000).to_bytes(4, "big") + b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)


def _command(seconds: float) -> None:
    say(helper=subprocess.Popen(["sleep", str(seconds)]).pid)


def _pool(size: int) -> None:
    with multiprocessing.get_context("fork").Pool(size) as pool:
        say(squares=pool.map(abs, range(size)))


_producers: list[Producer] = []


def _produce(count: int) -> None:
    """Send records with a producer that stays open, without waiting for delivery."""
    producer = Producer(bootstrap_servers=os.environ["SHOP_BOOTSTRAP"])
    _producers.append(producer)
    for number in range(count):
        producer.produce(topic("results"), f"{number}".encode() * 40)
    atexit.register(say, ended=count)
    say(produced=count)


DEEDS: dict[str, Any] = {
    "fork": lambda seconds: _fork(seconds) if current_job().delivery_count == 1 else None,
    "torn": lambda seconds: _torn(seconds) if current_job().delivery_count == 1 else None,
    "command": lambda seconds: _command(seconds) if current_job().delivery_count == 1 else None,
    "pool": _pool,
    "produce": _produce,
    "never_end": lambda seconds: atexit.register(time.sleep, seconds),
    "sleep": time.sleep,
    "fail": lambda times: _raise(ValueError("no address")) if current_job().delivery_count <= times else None,
    "bad": lambda size: _raise(ValueError(f"order {current_job().offset} is bad: {'x' * size}")),
    "reject": lambda why: _raise(Reject(why)),
    "release": lambda delay: _raise(Release("later", delay=delay)) if current_job().delivery_count == 1 else None,
    "missing": lambda why: _raise(NotFoundError(why)),
    "sysexit": lambda code: _raise(SystemExit(code)) if current_job().delivery_count == 1 else None,
    "exit": lambda code: os._exit(code) if current_job().delivery_count == 1 else None,
    "segv": lambda _: ctypes.string_at(0) if current_job().delivery_count == 1 else None,
    "hang": lambda seconds: time.sleep(seconds) if current_job().delivery_count == 1 else None,
}

worker = make()
strict = make()


@worker.job(topic("thread"), value=json.loads, retry=QUICK, outcomes={LookupError: Reject})
def on_thread(order: dict[str, Any]) -> None:
    do(order)


@worker.job(topic("process"), value=json.loads, retry=QUICK, timeout=1.5)
def in_process(order: dict[str, Any]) -> None:
    do(order)


@worker.job(topic("loop"), value=json.loads, retry=QUICK, timeout=1.0)
async def on_loop(order: dict[str, Any]) -> None:
    if "swallow" in order and current_job().delivery_count == 1:
        await _swallow(order["n"])
        return
    pause = order.pop("sleep", 0)
    do(order)
    await asyncio.sleep(pause if current_job().delivery_count == 1 else 0)


async def _swallow(number: int) -> None:
    say(n=number, count=1)
    for _ in range(80):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


@strict.job(topic("thread"), retry=Retry(limit=9))
def never(_: bytes) -> None:
    raise AssertionError
