"""What a command says while the cluster is silent or slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroups.cli import clients, reaching
from sharegroups.cli.main import main
from sharegroups.connection.waits import Wait
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport


def _said_while_late(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is printed on standard error during a block that takes long."""
    deadline_s = time.monotonic() + 60
    said = ""
    with reaching.lateness_said():
        while "\n" not in said:
            assert time.monotonic() < deadline_s, "nothing was said"
            time.sleep(0.01)
            said += capsys.readouterr().err
    return said.splitlines()[0]


@pytest.mark.rule("CT-90")
def test_a_command_that_takes_long_says_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "LATE_S", 0.01)
    wait = Wait("the coordinator of group 'mail\x1b'")
    inner = Wait("the answer of node0:9000 to FindCoordinator")
    try:
        assert _said_while_late(capsys) == (
            r"Note: after 0.01 s it still waits for the coordinator of group 'mail\x1b'"
        )
        wait.last = "This node is not the coordinator."
        assert _said_while_late(capsys).endswith("'; not yet because: This node is not the coordinator.")
    finally:
        inner.end()
        wait.end()


@pytest.mark.rule("CT-90")
def test_a_command_that_ends_in_time_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    wait = Wait("the answer of node0:9000 to Metadata")
    with reaching.lateness_said():
        wait.end()
    assert capsys.readouterr() == ("", "")


@pytest.mark.rule("CT-28", "CT-90")
def test_nodes_that_take_calls_and_do_not_answer_are_named_as_such(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while their store is away. That they are not up would be a wrong guess."""
    monkeypatch.setattr(reaching, "REACH_MS", 100)

    def opened(kind: type, settings: object) -> object:
        transport = SilentTransport(fake.network)
        transport.silent.add("node0:9000")
        return kind(settings, transport=transport)

    monkeypatch.setattr(clients, "open_client", opened)
    said = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", "node0:9000"]).stderr
    assert said == (
        "Error: Listing topics failed: Metadata was not answered within 0.1 s; neither an answer nor a refusal came "
        "from node0:9000. Such a node may be overloaded, paused, or without its store; its log says more\n"
    )


@pytest.fixture
def unreachable(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node can be connected to, which is reported soon."""
    monkeypatch.setattr(reaching, "REACH_MS", 100)
    fake.network.stop("node0:9000")


@pytest.mark.rule("CT-28", "CT-90")
@pytest.mark.parametrize(
    ("words", "variable", "named"),
    [
        (["--command-config", "FILE"], None, "bootstrap.servers in FILE"),
        (["--command-config", "FILE", "--bootstrap-server", "node0:9000"], None, "--bootstrap-server"),
        (["--command-config", "FILE"], "node0:9000", "bootstrap.servers in FILE"),
        ([], "node0:9000", "SHAREGROUPS_BOOTSTRAP"),
        ([], None, "--bootstrap-server"),
    ],
)
def test_the_hint_names_what_named_the_nodes(
    unreachable: None, tmp_path: Path, words: list[str], variable: str | None, named: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=node0:9000\n")
    given = [str(file) if word == "FILE" else word for word in words]
    result = CliRunner().invoke(main, ["topics", "list", *given], env={"SHAREGROUPS_BOOTSTRAP": variable})
    assert result.stderr.endswith(f", and is {named.replace('FILE', str(file))} right?\n")
