"""`sharegroups features`: what nodes report, and nothing else."""

from __future__ import annotations

import pytest

from kip932.api.v1.describe_configs_pb2 import DescribeConfigsResponse
from sharegroups.cli import clients
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.configs import Configs
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Two nodes, the second with share groups disabled."""
    cluster = FakeCluster(2)
    cluster.flags[1] = {"share.version": "0"}
    cluster.serve(1)
    monkeypatch.setattr(clients, "open_client", lambda kind, settings: kind(settings, transport=cluster.transport()))
    return cluster


@pytest.mark.rule("CT-99")
def test_the_transcript(fake: FakeCluster) -> None:
    check("features", ["features", "features --output json"])


@pytest.mark.rule("CT-99")
def test_nodes_that_agree_are_no_warning(fake: FakeCluster) -> None:
    fake.flags.clear()
    fake.serve(1)
    result = sharegroups("features")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[:3] for line in result.stdout.splitlines()[2:]] == [
        ["share.version", "0", "2"],
        ["share.version", "1", "2"],
    ]


def test_that_nothing_is_reported_is_said(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(self: Configs, request: object, context: object) -> DescribeConfigsResponse:
        return DescribeConfigsResponse()

    monkeypatch.setattr(Configs, "describe_configs", silent)
    for node in fake.nodes:
        fake.serve(node)
    result = sharegroups("features")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No node reports a level of share.version.\n")
