"""Role processes under `up --processes`: what they keep across a restart."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from share_node.node import children
from share_node.node.children import RoleProcess

FAKE_ROLE = "tests.integration.share_node.fake_role"


def fake_role(folder: Path, failed: Callable[[str], None]) -> RoleProcess:
    words = [f"data.dir={folder}", "listen.port=0"]
    return RoleProcess("fake", words, failed, program=[FAKE_ROLE])


async def kill(role: RoleProcess) -> None:
    """Kill the process of the newest start: the file has its ports before the parent knows its id."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(ProcessLookupError):
                return os.kill(role.pid, signal.SIGKILL)
            await asyncio.sleep(0.02)


async def ports_when(folder: Path, starts: int, name: str = "ports") -> list[str]:
    """Return the ports given to every start so far; waits until there have been `starts`."""
    async with asyncio.timeout(20):
        while True:
            found = (folder / name).read_text().split() if (folder / name).exists() else []
            if len(found) >= starts:
                return found
            await asyncio.sleep(0.02)


@pytest.mark.rule("CM-70")
@pytest.mark.asyncio
async def test_a_role_started_again_keeps_its_port_though_it_was_killed_before_it_was_ready(tmp_path: Path) -> None:
    failures: list[str] = []
    role = fake_role(tmp_path, failures.append)
    await role.start()
    try:
        assert await asyncio.wait_for(role.address, 20) == "127.0.0.1:4242"
        assert role.metrics_address == "127.0.0.1:4444"
        (tmp_path / "hold").touch()  # from now on it never gets ready
        for starts in (2, 3):
            await kill(role)
            assert await ports_when(tmp_path, starts) == ["0"] + ["4242"] * (starts - 1)
            assert (await ports_when(tmp_path, starts, "internal-ports"))[1:] == ["4343"] * (starts - 1)
            assert (await ports_when(tmp_path, starts, "metrics-ports"))[1:] == ["4444"] * (starts - 1)
        assert failures == []
    finally:
        await role.stop()


@pytest.mark.rule("CM-70", "CM-85")
@pytest.mark.asyncio
async def test_a_role_that_gives_up_on_its_port_is_offered_any(tmp_path: Path) -> None:
    failures: list[str] = []
    role = fake_role(tmp_path, failures.append)
    await role.start()
    try:
        await asyncio.wait_for(role.address, 20)
        (tmp_path / "refuse").touch()
        os.kill(role.pid, signal.SIGKILL)
        assert (await ports_when(tmp_path, 3))[:3] == ["0", "4242", "0"]
        (tmp_path / "refuse").unlink()
    finally:
        await role.stop()


@pytest.mark.rule("CM-70")
@pytest.mark.asyncio
async def test_a_role_that_is_stopped_is_not_started_again(tmp_path: Path) -> None:
    failures: list[str] = []
    role = fake_role(tmp_path, failures.append)
    await role.start()
    await asyncio.wait_for(role.address, 20)
    first = role.pid
    with capture_logs() as said:
        await role.stop()
    assert (role.pid, said, failures) == (first, [], [])
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.rule("CM-70")
@pytest.mark.asyncio
async def test_a_role_that_ignores_the_request_to_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(children, "STOP_WAIT_S", 0.1)
    (tmp_path / "deaf").touch()
    role = fake_role(tmp_path, lambda reason: None)
    await role.start()
    await asyncio.wait_for(role.address, 20)
    await asyncio.wait_for(role.stop(), 20)
    with pytest.raises(ProcessLookupError):
        os.kill(role.pid, 0)


@pytest.mark.rule("CM-70")
@pytest.mark.asyncio
async def test_a_role_that_keeps_failing_is_given_up_and_the_reason_says_how_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(children, "RESTARTS_MAX", 3)
    failed = asyncio.get_running_loop().create_future()
    role = fake_role(tmp_path, failed.set_result)
    await role.start()
    try:
        await asyncio.wait_for(role.address, 20)
        (tmp_path / "refuse").touch()
        os.kill(role.pid, signal.SIGKILL)
        assert await asyncio.wait_for(failed, 40) == "fake ended 3 times within 60 s"
        assert len(await ports_when(tmp_path, 1)) == 1 + 3
    finally:
        await role.stop()
