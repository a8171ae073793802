"""The console on a fake cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC
from sharegroups.cli import clients
from sharegroups.console.app import Console, Options
from sharegroups.console.audit import AuditLog
from sharegroups.console.live import Live
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import REJECTED, bare, copy_of, store

from .browser import OwnConsole

DLQ = "dlq.orders"
T0 = 1_700_000_000_000
EVIL = b"ValueError: <script>alert(1)</script> \x1b[31m \xe2\x80\xae"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Topics `orders` and `dlq.orders`, the DLQ of groups `g` and `h`, with four letters and another record."""
    cluster = FakeCluster()
    monkeypatch.setattr(clients, "open_client", lambda kind, settings: kind(settings, transport=cluster.transport()))
    for name in ("orders", DLQ):
        cluster.add_topic(name, 2)
    cluster.configs[RESOURCE_TOPIC, DLQ] = {"errors.deadletterqueue.group.enable": "true"}
    for group in ("g", "h"):
        cluster.groups[group] = None
        cluster.configs[RESOURCE_GROUP, group] = {"errors.deadletterqueue.topic.name": DLQ}
    for number in (0, 1):
        store(cluster, "orders", *((None, b"job %d" % job, (), 1) for job in range(8)), partition=number)
    store(cluster, DLQ, copy_of(0), copy_of(1, cause=REJECTED, count=1, reason=EVIL), at_ms=T0)
    store(cluster, DLQ, bare(2, group="h", reason=b"TimeoutError"), (None, b"x", (), 5), at_ms=T0 + 60_000)
    store(cluster, DLQ, copy_of(7, partition=1, reason=b"TimeoutError"), partition=1, at_ms=T0 + 120_000)
    return cluster


class Open(Protocol):
    """Starts a console with these options."""

    def __call__(self, **options: Any) -> OwnConsole: ...


@pytest.fixture
def opened(fake: FakeCluster, tmp_path: Path) -> Iterator[Open]:
    """Return what starts a console; its audit log is `audit.log`."""
    browsers: list[OwnConsole] = []

    def start(**options: Any) -> OwnConsole:
        given: dict[str, Any] = {
            "settings": {"bootstrap.servers": "node0:9000"},
            "port": 7980,
            "local": "User:ANONYMOUS",
        } | options
        browser = OwnConsole(Console(Options(**given), AuditLog(tmp_path / "audit.log"), Live(refresh_s=0.01)))
        browsers.append(browser.__enter__())
        return browser

    yield start
    for browser in browsers:
        browser.__exit__(None, None, None)


@pytest.fixture
def browser(opened: Open) -> OwnConsole:
    """A console on this machine, without signing in."""
    return opened()


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """The audit log."""
    return tmp_path / "audit.log"


def lines_of(audit: Path) -> list[dict[str, Any]]:
    """Return the lines of an audit log."""
    return [json.loads(line) for line in audit.read_text().splitlines()]
