"""A process shuts down in order: it takes no new shards, releases its own, removes its node entry, then drains its
calls."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from shard_runtime.config.process_settings import load_settings
from shard_runtime.rpc import unfinished
from shard_runtime.rpc.budget import Budget
from shard_runtime.rpc.server import RpcOptions, RpcServer
from shard_runtime.rpc.unfinished import CUT_MIN_BYTES, EVERY_S, STALLED_S
from share_node.node.process import STREAMS_WAIT_S, NodeProcess
from share_node.node.serve import serve, serve_role
from tests.support.clocks import HandClock
from tests.support.virtual_time import virtual


def noting(done: list[str], name: str) -> Any:
    """Return a method that waits for one turn of the loop and then records the call with its arguments."""

    async def note(*reported: object) -> None:
        await asyncio.sleep(0)
        done.append(" ".join([name, *map(str, reported)]))

    return note


@pytest.mark.rule("CM-4")
@virtual
async def test_it_is_no_target_any_more_before_it_gives_anything_up_and_calls_have_their_grace_at_the_end() -> None:
    done: list[str] = []
    settings = load_settings({"store.url": "redis://h", "drain.grace.ms": "25000"})
    identity: Any = SimpleNamespace(name="n", release=lambda: done.append("name free"))
    store: Any = SimpleNamespace(close=noting(done, "store closed"), watch=None)
    process = NodeProcess(settings, identity, store, HandClock())
    parts: Any = process
    parts._node = SimpleNamespace(leave=noting(done, "leaving"), stop=noting(done, "shards released, entry removed"))
    parts._roles = SimpleNamespace(
        drain=lambda: done.append("parked requests answered"), stop=noting(done, "roles end")
    )
    for server, name in ((parts.server, "clients"), (parts.internal, "nodes")):
        server.ready = noting(done, f"{name}: ready")
        server.drain = noting(done, f"{name}: drain")
    await process.stop()
    grace = f"25.0 {STREAMS_WAIT_S}"
    assert done == [
        "leaving",
        "clients: ready False",
        "nodes: ready False",
        "parked requests answered",
        "shards released, entry removed",
        f"clients: drain {grace}",
        f"nodes: drain {grace}",
        "roles end",
        "store closed",
        "name free",
    ]


@pytest.mark.rule("CM-85")
@pytest.mark.parametrize("listener", ["server", "internal"])
@virtual
async def test_a_listener_that_takes_no_calls_ends_the_process_which_gives_its_shards_up(
    monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    done: list[str] = []
    settings = load_settings({"store.url": "redis://h"})
    identity: Any = SimpleNamespace(name="n", release=lambda: None)
    process = NodeProcess(settings, identity, cast(Any, SimpleNamespace(watch=None)), HandClock())

    async def started(*_: object, waits: bool) -> tuple[NodeProcess, str]:
        return process, "h:1"

    monkeypatch.setattr("share_node.node.serve._start", started)
    monkeypatch.setattr(process, "wait_ready", asyncio.Event().wait)
    monkeypatch.setattr(process, "stop", noting(done, "stopped"))
    getattr(process, listener)._report_failed("ValueError: upside down")
    assert "takes no calls any more (ValueError: upside down)" in await serve(settings, asyncio.Event())
    assert done == ["stopped"]


@pytest.mark.rule("CM-85")
def test_a_role_that_cannot_go_on_has_status_1_and_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = ["the listener takes no calls any more"]

    async def served(*_: object, **__: object) -> str:
        return reason[0]

    monkeypatch.setattr("share_node.node.serve.serve", served)
    monkeypatch.setattr("share_node.node.serve.run", asyncio_run)
    monkeypatch.setattr(
        "share_node.node.serve.configure_logs", lambda *_, **__: lambda: None
    )  # it would outlast the captured stream
    words = ["store.url=redis://h"]
    assert serve_role("group_coordinator", words) == 1
    assert "Error: the listener takes no calls any more" in capsys.readouterr().err
    reason[0] = ""
    assert serve_role("group_coordinator", words) == 0, "asked to end"


def asyncio_run(main: Any) -> None:
    """Run `main` as `run` does, without the checks of the process's memory."""
    asyncio.run(main())


@pytest.mark.rule("CM-93")
@virtual
async def test_a_connection_that_is_cut_is_counted_and_reported_and_what_grpc_keeps_of_one_is_bounded() -> None:
    server = RpcServer("127.0.0.1", budget=Budget(1 << 20))
    with capture_logs() as lines:
        server._cut("ipv4:1.2.3.4:5", 900_000)
    assert server.connections_cut == 1
    assert [(line["peer"], line["its_bytes"], line["budget_bytes"]) for line in lines] == [
        ("ipv4:1.2.3.4:5", 900_000, 1 << 20)
    ]
    arguments = dict(RpcOptions().channel_arguments())
    assert (arguments["grpc.http2.lookahead_bytes"], arguments["grpc.max_concurrent_streams"]) == (64 << 10, 1_000)
    assert (EVERY_S, STALLED_S, CUT_MIN_BYTES, unfinished._GROWTH_PART) == (1 / 20, 3, 1 << 20, 16)


@pytest.mark.rule("CM-246")
@virtual
async def test_all_ports_for_clients_have_the_bounds_of_one_and_the_port_for_nodes_has_its_own() -> None:
    ports = dict.fromkeys(("external.listen.port", "kafka.listen.port", "kafka.external.listen.port"), "0")
    settings = load_settings({"store.url": "redis://h", "rpc.memory.bytes": "70000000", **ports})
    process = NodeProcess(settings, cast(Any, None), cast(Any, SimpleNamespace(watch=None)), HandClock())
    first, external = process.server, process.external
    assert external is not None
    assert external.budget is first.budget
    assert first.budget.total_bytes == 70_000_000
    assert external.unfinished is first.unfinished
    assert external.gate.calls is first.gate.calls
    assert process.internal.budget is not first.budget
    for listener in (process.kafka, process.kafka_external):
        assert cast(Any, listener)._around.served.gate is first.gate
