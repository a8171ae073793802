"""The command line tools on a fake cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from sharegroups.cli import clients
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """The cluster that every command connects to: topic `t` with two partitions."""
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    monkeypatch.setattr(clients, "open_client", lambda kind, settings: kind(settings, transport=cluster.transport()))
    return cluster


def sharegroups(*words: str, stdin: str | None = None) -> Result:
    """Run a command; the result has its output and exit status."""
    return CliRunner().invoke(main, [*words, "--bootstrap-server", "node0:9000"], input=stdin)
