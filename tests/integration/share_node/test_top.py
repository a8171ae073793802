"""`sharegroups top` and `groups list` beside a real `sharegroups up`, with a stopped, a hung and a busy group."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from textual.pilot import Pilot

from sharegroups import AcknowledgeType, Admin, Producer, ShareConsumer
from sharegroups.aio.admin import Admin as AsyncAdmin
from sharegroups.cli.main import main
from sharegroups.cli.top.app import TopApp
from sharegroups.cli.top.cluster_source import ClusterSource
from sharegroups.insight import causes
from tests.support.node import BOUND_S, TERMINATED, StartedProcess, up_words
from tests.unit.sharegroups.cli.top.pictures import text_of

RECORDS = 400
#: The hung group must hold its records until the end of the test.
LONG_LOCKS = {"group.share.record.lock.duration.ms": "60000"}
FEW = {"share.acquire.mode": "record_limit", "max.poll.records": 5, "share.acknowledgement.mode": "explicit"}


@contextmanager
def three_groups(bootstrap: str) -> Iterator[None]:
    """Make a group whose member has left, one whose member keeps what it holds, and one that finishes some."""
    over = threading.Event()

    def consumer(group: str) -> ShareConsumer:
        made = ShareConsumer(FEW, bootstrap_servers=bootstrap, group_id=group)
        made.subscribe(["orders"])
        return made

    def work() -> None:
        with consumer("busy") as busy:
            while not over.is_set():
                for message in busy.poll(1.0):
                    over.wait(0.05)
                    busy.acknowledge(message, AcknowledgeType.ACCEPT)

    with ExitStack() as held:
        with consumer("stopped") as stopped:
            for message in stopped.poll(BOUND_S):
                stopped.acknowledge(message, AcknowledgeType.ACCEPT)
            stopped.commit_sync()
        hung = held.enter_context(consumer("hung"))
        assert hung.poll(BOUND_S)
        worker = threading.Thread(target=work)
        worker.start()
        held.callback(worker.join, BOUND_S)
        held.callback(over.set)
        yield


async def until(pilot: Pilot[None], holds: Callable[[str], bool]) -> str:
    """Return the screen's text once this holds of it."""
    text = ""
    for _ in range(int(BOUND_S * 10)):
        await pilot.pause(0.1)
        text = text_of(pilot)
        if holds(text):
            return text
    raise AssertionError(text)


def line_of(text: str, group: str) -> str:
    """Return the group's line of a table; empty if there is none."""
    return next((line for line in text.splitlines() if line.split()[:1] == [group]), "")


@pytest.mark.asyncio
@pytest.mark.rule("CT-155", "CT-156", "CT-157", "CT-158", "CT-159", "CT-160")
async def test_a_stopped_a_hung_and_a_busy_group_are_shown_with_their_causes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The causes of a minute are made those of moments, so that the test need not wait for them.

    Shows of CT-155 three causes, of CT-157 and CT-158 what needs a real cluster; the others have the unit tests.
    """
    monkeypatch.setattr(causes, "LONG_HELD_MS", 1_000)
    monkeypatch.setattr(causes, "FRESH_MS", 0)
    node = StartedProcess(up_words(tmp_path / "data", LONG_LOCKS), tmp_path)
    try:
        bootstrap = json.loads(node.first_line())["bootstrap"]
        await asyncio.to_thread(_prepare, bootstrap)
        groups = three_groups(bootstrap)
        await asyncio.to_thread(groups.__enter__)
        try:
            settings = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": 2_000}
            async with AsyncAdmin(settings) as admin:
                app = TopApp(ClusterSource(admin), 0.3)
                async with app.run_test(size=(120, 24)) as pilot:
                    await _explored(pilot)
                    await asyncio.to_thread(_printed, bootstrap)
                    await _lost_and_back(pilot, node)
        finally:
            await asyncio.to_thread(groups.__exit__, None, None, None)
    finally:
        assert node.stop() == TERMINATED


def _prepare(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert not any(admin.create_topics(["orders"]).values())
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            producer.produce("orders", f"order {number}")


async def _explored(pilot: Pilot[None]) -> None:
    def holds(text: str) -> bool:
        busy, hung, stopped = (line_of(text, name) for name in ("busy", "hung", "stopped"))
        return "handlers busy" in busy and "held " in hung and "no member" in stopped

    text = await until(pilot, holds)
    assert line_of(text, "hung").split()[1:3] == ["orders", str(RECORDS)]
    assert line_of(text, "stopped").split()[1:3] == ["orders", str(RECORDS - 5)]

    await pilot.press("slash", *"hung", "enter", "enter")
    text = await until(pilot, lambda text: " #ooooo" in text)
    assert "Group hung: Stable, 1 member, coordinator" in text
    assert "0-4 held by" in text
    await pilot.press("enter")
    text = await until(pilot, lambda text: "Value" in text)
    assert "order 0  (7 bytes)" in text
    await pilot.press("o", *"7", "enter")
    await until(pilot, lambda text: "order 7  (7 bytes)" in text and "7: available" in text)
    await pilot.press("escape", "escape", "escape")


async def _lost_and_back(pilot: Pilot[None], node: StartedProcess) -> None:
    await until(pilot, lambda text: "no member" in line_of(text, "stopped"))
    node.signal(signal.SIGSTOP)
    try:
        text = await until(pilot, lambda text: "figures are" in text and "The cluster does not answer." in text)
        assert "no member" in line_of(text, "stopped"), "the last figures stay"
    finally:
        node.signal(signal.SIGCONT)
    await until(pilot, lambda text: "figures are" not in text and "no member" in line_of(text, "stopped"))


def _printed(bootstrap: str) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, "--bootstrap-server", bootstrap], prog_name="sharegroups")
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    once = run("top", "--once")
    assert line_of(once, "stopped").endswith("no member")
    assert "held " in line_of(once, "hung")
    rows = {row["group"]: row for row in json.loads(run("top", "--output", "json"))}
    assert (rows["hung"]["lag"], rows["hung"]["in_flight"], rows["hung"]["members"]) == (RECORDS, 5, 1)
    assert (rows["busy"]["why"], rows["busy"]["lag"] < RECORDS) == ("handlers busy", True)
    listed = run("groups", "list")
    assert line_of(listed, "hung").split()[:5] == ["hung", "Stable", "1", "1", str(RECORDS)]
    assert line_of(listed, "stopped").split()[:5] == ["stopped", "Empty", "0", "1", str(RECORDS - 5)]


@pytest.mark.rule("CT-157")
@pytest.mark.parametrize(
    ("environment", "ends", "status"),
    [({"NO_COLOR": "1"}, b"q", 0), ({"TERM": "vt100"}, signal.SIGTERM, 143), ({}, b"\x03", 0)],
)
def test_on_a_terminal_it_ends_at_once_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, environment: dict[str, str], ends: bytes | signal.Signals, status: int
) -> None:
    """Shows of CT-157 that 80 columns, no colour and no mouse suffice, and how it ends."""
    node = StartedProcess(up_words(tmp_path / "data"), tmp_path)
    try:
        bootstrap = json.loads(node.first_line())["bootstrap"]
        ours, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(terminal)
        screen = subprocess.Popen(
            [sys.executable, "-c", "from sharegroups.cli import run; run()", "top", "--bootstrap-server", bootstrap],
            stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm", **environment},
        )  # fmt: skip
        try:
            read = _read_until(ours, b"There is no group")
            assert b"\x1b[?1049h" in read, "the screen is an alternate one"
            assert not set(re.findall(rb"\x1b\[\?(100[01236])h", read)), "the mouse stays the terminal's"
            if isinstance(ends, bytes):
                os.write(ours, ends)
            else:
                screen.send_signal(ends)
            _read_until(ours, b"\x1b[?1049l")
            assert screen.wait(BOUND_S) == status
            assert termios.tcgetattr(terminal) == before
        finally:
            screen.kill()
            screen.wait(BOUND_S)
            os.close(ours)
            os.close(terminal)
    finally:
        assert node.stop() == TERMINATED


def _read_until(terminal: int, wanted: bytes) -> bytes:
    read = b""
    while wanted not in read:
        readable, _, _ = select.select([terminal], [], [], BOUND_S)
        assert readable, read
        read += os.read(terminal, 65_536)
    return read
