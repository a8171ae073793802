"""An image's health check on a process that starts, serves, drains, or does not exist."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shard_runtime.config.process_settings import LISTEN_PORT, SettingsError, load_settings
from shard_runtime.rpc.server import LIVENESS, READINESS, STARTUP, ListenError, RpcServer
from share_node.health import address_of, main, status_of
from share_node.node.waiting import WaitingPort
from tests.support.certificates import node_files
from tests.support.ports import free_port


@pytest.mark.rule("CM-4")
@pytest.mark.asyncio
async def test_readiness_follows_the_process() -> None:
    server = RpcServer("127.0.0.1")
    await server.start()
    try:
        assert await status_of(server.address, LIVENESS) == "SERVING"
        assert await status_of(server.address, READINESS) == "NOT_SERVING"
        assert await status_of(server.address, STARTUP) == "NOT_SERVING"
        await server.ready(True)
        assert await status_of(server.address, READINESS) == "SERVING"
        assert await status_of(server.address, STARTUP) == "SERVING"
        assert await status_of(server.address, "") == "SERVING"
    finally:
        await server.drain(0)
    assert await status_of(server.address, READINESS) == "UNAVAILABLE"


@pytest.mark.rule("CM-130")
@pytest.mark.asyncio
async def test_a_process_that_waits_lives_and_is_not_ready_and_its_port_becomes_free() -> None:
    settings = load_settings({"listen.host": "127.0.0.1", "listen.port": str(free_port())})
    address = f"127.0.0.1:{settings[LISTEN_PORT]}"
    port, second = WaitingPort(settings), WaitingPort(settings)
    await port.open()
    await port.open()
    try:
        assert await status_of(address, "") == "NOT_SERVING"
        assert await status_of(address, LIVENESS) == "SERVING"
        assert await status_of(address, READINESS) == "NOT_SERVING"
        assert await status_of(address, STARTUP) == "NOT_SERVING"
        async with grpc.aio.insecure_channel(address) as channel:
            other: Any = channel.unary_unary("/any.Service/Method")
            with pytest.raises(grpc.aio.AioRpcError, match="this node waits for its store") as refused:
                await other(b"", timeout=20)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, "so that the caller tries another node"
        with pytest.raises(ListenError, match=f"cannot listen on {address}: another process may have the port"):
            await second.open()
    finally:
        await port.close()
    await port.close()
    assert await status_of(address, LIVENESS) == "UNAVAILABLE"
    await second.open()
    assert await status_of(address, LIVENESS) == "SERVING"
    await second.close()


@pytest.mark.rule("CM-130")
@pytest.mark.asyncio
async def test_a_process_with_tls_that_waits_answers_probes_without_tls_at_its_port_for_health_alone(
    tmp_path: Path,
) -> None:
    files = node_files(tmp_path)
    tls = {
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
        "ssl.ca.location": str(files.authorities),
    }
    ports = {"listen.port": str(free_port()), "health.listen.port": str(free_port())}
    settings = load_settings({"listen.host": "127.0.0.1", **ports, **tls})
    port = WaitingPort(settings)
    await port.open()
    try:
        assert await status_of(f"127.0.0.1:{ports['health.listen.port']}", LIVENESS) == "SERVING"
        assert await status_of(f"127.0.0.1:{ports['health.listen.port']}", READINESS) == "NOT_SERVING"
        assert await status_of(f"127.0.0.1:{ports['listen.port']}", LIVENESS) == "UNAVAILABLE"
    finally:
        await port.close()
    files.key.write_text("")
    with pytest.raises(ListenError, match=r"TLS cannot be served: .* has no such key"):
        await port.open()
    assert await status_of(f"127.0.0.1:{ports['health.listen.port']}", LIVENESS) == "UNAVAILABLE"


@pytest.mark.asyncio
async def test_the_exit_status_says_whether_it_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    server = RpcServer("127.0.0.1")
    port = await server.start()
    environ = {"SHAREGROUPS_LISTEN_HOST": "0.0.0.0", "SHAREGROUPS_LISTEN_PORT": str(port)}
    try:
        assert await asyncio.to_thread(main, [], environ) == 1
        await server.ready(True)
        assert await asyncio.to_thread(main, [], environ) == 0
    finally:
        await server.drain(0)
    assert capsys.readouterr().out.splitlines() == [
        f"readiness of 127.0.0.1:{port}: NOT_SERVING",
        f"readiness of 127.0.0.1:{port}: SERVING",
    ]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "127.0.0.1:7932"),
        ("::", "[::1]:7932"),
        ("10.1.2.3", "10.1.2.3:7932"),
        ("fd00::7", "[fd00::7]:7932"),
        ("node-a", "node-a:7932"),
    ],
)
def test_a_process_is_asked_where_it_listens(host: str, address: str) -> None:
    assert address_of(load_settings({"listen.host": host, "listen.port": "7932"})) == address


def test_a_process_with_tls_is_asked_at_its_port_for_health() -> None:
    tls = {f"ssl.{name}.location": "f" for name in ("certificate", "key", "ca")} | {"listen.port": "7932"}
    assert address_of(load_settings(tls | {"health.listen.port": "7933"})) == "127.0.0.1:7933"
    assert address_of(load_settings({"listen.port": "7932", "health.listen.port": "7933"})) == "127.0.0.1:7933"
    with pytest.raises(SettingsError, match="SHAREGROUPS_HEALTH_LISTEN_PORT"):
        address_of(load_settings(tls))
    with pytest.raises(SettingsError, match=r"health\.listen\.port is 0"):
        address_of(load_settings(tls | {"health.listen.port": "0"}))


def test_a_port_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="SHAREGROUPS_LISTEN_PORT"):
        address_of(load_settings())


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (["readyness"], {}, "'readyness' is not a health service; expected one of startup, liveness, readiness"),
        ([], {"SHAREGROUPS_LISTEN_PROT": "1"}, "Did you mean 'SHAREGROUPS_LISTEN_PORT'?"),
        ([], {}, "listen.port is 0"),
    ],
)
def test_what_cannot_be_asked_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], environ: dict[str, str], expected: str
) -> None:
    assert main(arguments, environ) == 1
    assert expected in capsys.readouterr().err
