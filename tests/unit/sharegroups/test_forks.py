"""Places where no client can work: in a child forked from its process, and under green threads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharegroups import Admin, Producer, ShareConsumer, aio
from sharegroups.errors import IllegalStateError, NetworkError
from sharegroups.forks import check_grpc, check_threads, signals
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster

_NO_CLUSTER = {"bootstrap.servers": "127.0.0.1:1"}

#: Makes every call of every client in a forked child. The parent has opened no connection, so the child's own clients
#: work.
_USES = """
import asyncio, os, sys
from sharegroups import Admin, Producer, ShareConsumer, aio
at = dict(bootstrap_servers="127.0.0.1:1")
producer, admin, consumer = Producer(**at), Admin(**at), ShareConsumer(**at, group_id="g")
waiting = Producer(**at)
waiting._inner.append("t", 0, waiting._inner.record(b"x", None, None, None), None)  # as if the topic were known
consumer.subscribe(["t"])
async def made():
    return aio.Producer(**at), aio.Admin(**at), aio.ShareConsumer(**at, group_id="g")
others = asyncio.run(made())
consumer._lock.acquire()
waiting._inner.sender.lock.acquire()  # as by a thread of the parent: in the child no thread ever releases it
uses = [
    lambda: producer.produce("t", b"x"), producer.flush, producer.poll,
    lambda: waiting.produce("t", b"x", partition=0), waiting.flush,
    admin.list_topics, lambda: consumer.poll(1), consumer.commit_sync, consumer.subscription,
    lambda: asyncio.run(others[0].produce("t", b"x")),
    lambda: asyncio.run(others[1].list_topics()),
    lambda: asyncio.run(others[2].poll(1)),
]
if pid := os.fork():
    _, status = os.waitpid(pid, 0)
    waiting._inner.sender.lock.release()
    os._exit(os.waitstatus_to_exitcode(status))
said = []
for use in uses:
    try:
        use()
    except RuntimeError as error:
        said.append(str(error))
for client in (producer, waiting, admin, consumer):
    client.close()
wrong = [one for one in said if f"was made in process {os.getppid()}, and this is process {os.getpid()}" not in one]
print(len(said), len(uses), wrong, flush=True)
Producer(**at).close()
sys.exit(0)
"""


def ran(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.rule("CL-149")
def test_every_call_of_a_client_of_the_parents_is_refused_at_once_in_a_forked_child() -> None:
    done = ran(_USES)
    assert (done.stdout, done.returncode) == ("12 12 []\n", 0), done.stderr


@pytest.mark.rule("CL-149")
def test_where_the_parent_has_used_a_client_the_child_can_make_none_and_hears_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kip932.rpc.grpc_transport.used_in", os.getpid() + 1)
    for make in (Producer, Admin, ShareConsumer, aio.ShareConsumer):
        with pytest.raises(IllegalStateError, match=rf"process {os.getpid() + 1}, from which it was forked, had used"):
            make(_NO_CLUSTER, group_id="g") if make in (ShareConsumer, aio.ShareConsumer) else make(_NO_CLUSTER)
    check_grpc(None)
    check_grpc(os.getpid())


class Silent:
    """A transport that never answers a call."""

    async def call(self, *_: object) -> object:
        return await asyncio.Event().wait()

    async def close(self) -> None: ...


@pytest.mark.rule("CL-149")
@on_fake_cluster()
async def test_a_topic_is_not_said_to_be_missing_before_an_answer_says_so(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with aio.Producer(_NO_CLUSTER, transport=cast(Any, Silent())) as producer:
        with pytest.raises(NetworkError, match=r"could not be looked up: no node answered within max.block.ms"):
            await producer.produce("t", b"x")
    assert "no cluster answers at 127.0.0.1:1 (no answer within 2 s)" in caplog.text
    assert "does not exist" not in caplog.text


@pytest.mark.rule("CL-150")
@pytest.mark.parametrize(
    ("module", "patched", "name"),
    [("gevent.monkey", "is_module_patched", "gevent"), ("eventlet.patcher", "is_monkey_patched", "eventlet")],
)
def test_under_green_threads_a_client_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, module: str, patched: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{patched: lambda _: False}))
    check_threads()
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{patched: lambda _: True}))
    for make in (Producer, Admin):
        with pytest.raises(IllegalStateError, match=rf"^{name}'s monkey patch .*patch.*\(thread=False\)"):
            make(_NO_CLUSTER)


_SIGNALS = """
import os, signal
from sharegroups.cli.interrupts import terminable
from sharegroups.forks import signals
heard = []
with terminable(), signals(lambda number, _: heard.append(number)), signals(lambda number, _: heard.append(-number)):
    children = []
    for number in (signal.SIGTERM, signal.SIGINT):
        if (pid := os.fork()) == 0:
            os.kill(os.getpid(), number)
            os._exit(9)
        children.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.kill(os.getpid(), signal.SIGTERM)
    print(children, heard)
"""


@pytest.mark.rule("CL-122")
def test_a_forked_child_does_on_signals_what_was_done_before_the_command_and_the_worker_took_them() -> None:
    done = ran(_SIGNALS)
    assert done.stdout == "[-15, -2] [-15]\n", done.stderr
    assert done.stderr.count("KeyboardInterrupt") == 1


_EARLY_SIGNAL = """
import os, signal
early = []
os.register_at_fork(after_in_child=lambda: early and os.kill(os.getpid(), signal.SIGTERM))
from sharegroups.forks import signals
heard = []
with signals(lambda number, _: heard.append(number)):
    early.append(True)
    if (pid := os.fork()) == 0:
        os._exit(9)
    child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.kill(os.getpid(), signal.SIGTERM)
    print(child, heard, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


@pytest.mark.rule("CL-122")
def test_a_sigterm_that_comes_to_a_child_before_it_is_ready_is_not_lost() -> None:
    """A pool that has finished ends children that have only just started, and waits for them."""
    done = ran(_EARLY_SIGNAL)
    assert done.stdout == "-15 [15] set()\n", done.stderr


def test_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with signals(lambda *_: None):
        assert signal.getsignal(signal.SIGTERM) not in before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
