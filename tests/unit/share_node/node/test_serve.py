"""The default name of a process, its stop when its parent ends, and the output of a role."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from shard_runtime.config.process_settings import load_settings
from shard_runtime.rpc.server import ListenError
from share_node.node import serve
from share_node.node.serve import Served, StopSignal, node_name


@pytest.mark.rule("CM-1")
def test_a_name_is_the_one_given_or_made_of_host_roles_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host-1")
    given = {"listen.port": "7932", "node.roles": "group_coordinator,partition_leader"}
    assert node_name(load_settings(given)) == "host-1-group_coordinator+partition_leader-7932"
    assert node_name(load_settings({**given, "node.name": "pod-0"})) == "pod-0"


def test_the_end_of_the_parent_is_the_end_of_its_pipe_and_what_it_writes_is_not(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "ORPHAN_GRACE_S", 3_600)

    async def story() -> tuple[bool, int]:
        stop = StopSignal()
        stop.with_parent()
        os.write(parent, b"alive")
        for _ in range(10):
            await asyncio.sleep(0)
        early = stop.received.is_set()
        os.close(parent)
        await stop.received.wait()
        return early, stop.status

    assert asyncio.run(story()) == (False, 0)


@pytest.fixture
def role(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a role, which serves at h:1 and ends with `outcome`; the function returns the exit
    status and the output. `metrics`: where it serves these; `kafka`: where Kafka's clients."""

    def run(outcome: str | Exception, *words: str, metrics: str = "", kafka: str = "") -> tuple[int, str, str]:
        async def served(*_: object, on_ready: Callable[[Served], None], waits: bool) -> str:
            assert waits == (serve.WITH_PARENT not in words), "a parent says what is missing, in its role's place"
            if isinstance(outcome, Exception):
                raise outcome
            on_ready(Served("h:1", "h:2", metrics, kafka))
            return outcome

        monkeypatch.setattr(serve, "serve", served)
        monkeypatch.setattr(serve, "configure_logs", lambda *_, **__: lambda: None)
        status = serve.serve_role("group_coordinator", ["log.format=console", *words])
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return run


def test_a_role_says_where_it_serves_and_to_a_parent_also_where_nodes_reach_it_and_its_metrics_are(
    role: Callable[..., tuple[int, str, str]], parent: int
) -> None:
    assert role("") == (0, "ready h:1\n", "")
    assert role("", serve.WITH_PARENT) == (0, "ready h:1 h:2\n", "")
    assert role("", serve.WITH_PARENT, metrics="h:3") == (0, "ready h:1 h:2 h:3\n", "")
    assert role("", serve.WITH_PARENT, metrics="h:3", kafka="h:4") == (0, "ready h:1 h:2 h:3 h:4\n", "")
    assert role("", serve.WITH_PARENT, kafka="h:4") == (0, "ready h:1 h:2 - h:4\n", "")
    assert role("", serve.WITH_PARENT, "log.format=json") == (0, "ready h:1 h:2\n", ""), "what its parent reads"
    os.close(parent)


def test_a_role_says_why_it_ends_or_cannot_start(role: Callable[..., tuple[int, str, str]], parent: int) -> None:
    assert role("its store has ended") == (1, "ready h:1\n", "Error: its store has ended\n")
    assert role(ListenError("a port")) == (1, "", "Error: a port\n")
    assert role(ListenError("a port"), serve.WITH_PARENT) == (1, 'failed "a port"\n', "")
    status, reported, wrong = role("", "listen.port")
    assert (status, reported) == (1, "")
    assert wrong == "Error: argument 'listen.port' is not name=value, as in listen.port=7932\n"
    os.close(parent)


@pytest.mark.rule("CM-241")
def test_a_role_whose_output_a_program_reads_as_json_prints_nothing_else(
    role: Callable[..., tuple[int, str, str]],
) -> None:
    with capture_logs() as lines:
        status, reported, wrong = role("its store has ended", "log.format=json")
    assert (status, wrong) == (1, "")
    ready = json.loads(reported)
    assert list(ready) == ["timestamp", "level", "event", "service", "address"], "as a log line"
    assert [ready[name] for name in ("level", "event", "address")] == ["info", "ready", "h:1"]
    assert [line["cause"] for line in lines] == ["its store has ended"]


@pytest.mark.rule("CT-80")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_the_process_at_once(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status is the one that a shell gives to a process killed by that signal. After one signal a role's status is
    143, or 0 after Ctrl-C. Not covered of CT-80: that clients and workers shut down cleanly and end with 130, and that
    the status of a whole process is this one; the tests of shutting down cover that."""

    async def main() -> int:
        ended = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(os, "_exit", ended.set_result)
        stop = StopSignal()
        signal.raise_signal(number)
        await stop.received.wait()
        assert (ended.done(), stop.status) == (False, 143 if number == signal.SIGTERM else 0)
        signal.raise_signal(number)
        return int(await asyncio.wait_for(ended, 30))

    assert asyncio.run(main()) == status
