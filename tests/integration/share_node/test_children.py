"""Role processes under `up --processes`: what they keep across a restart."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from share_node.node.children import RoleProcess

FAKE_ROLE = "tests.integration.share_node.fake_role"


def fake_role(folder: Path, failures: list[str]) -> RoleProcess:
    words = [f"data.dir={folder}", "listen.port=0"]
    return RoleProcess("fake", words, failures.append, program=[FAKE_ROLE])


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
    role = fake_role(tmp_path, failures)
    await role.start()
    try:
        assert await asyncio.wait_for(role.address, 20) == "127.0.0.1:4242"
        assert role.metrics_address == "127.0.0.1:4444"
        (tmp_path / "hold").touch()  # from now on it never gets ready
        for starts in (2, 3):
            os.kill(role.pid, signal.SIGKILL)
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
    role = fake_role(tmp_path, failures)
    await role.start()
    try:
        await asyncio.wait_for(role.address, 20)
        (tmp_path / "refuse").touch()
        os.kill(role.pid, signal.SIGKILL)
        assert (await ports_when(tmp_path, 3))[:3] == ["0", "4242", "0"]
        (tmp_path / "refuse").unlink()
    finally:
        await role.stop()
