"""The network of the driver `namespaces`: each kind of cut has its documented effect, and nothing remains
afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.deployment import Cut, Unsupported
from tests.chaos.drivers.children import Child
from tests.chaos.drivers.iptables import Firewall
from tests.chaos.drivers.namespaces import require_namespaces
from tests.chaos.drivers.network import Network
from tests.chaos.drivers.runs import Run

PORT = 7_000


class Pair:
    """A server in the namespace `there`, and clients in `here`, in `aside` and in this machine's own namespace."""

    def __init__(self, network: Network, run: Run, folder: Path) -> None:
        self.network = network
        self._run, self._folder = run, folder
        self._address = network.add("there")
        self.server = self._child("serve", "there", "serve")
        assert self.server.line() == "ready\n"
        network.add("aside")
        network.add("here")
        self.here, self.aside = self._child("here", "here", "ask"), self._child("aside", "aside", "ask")
        self.machine = self._child("machine", "", "ask")

    def _child(self, name: str, where: str, verb: str) -> Child:
        words = self.network.enter(where) if where else []
        command = [*words, sys.executable, "-m", "tests.chaos.drivers.echo", verb, self._address, str(PORT)]
        child = Child(name, command, self._folder / f"{name}.log", self._run.environment)
        child.launch()
        return child

    @staticmethod
    def ask(client: Child, line: str) -> str:
        """Send one order to `echo` and return its reply."""
        client.say(line)
        return client.line().strip()

    def close(self) -> None:
        """End the processes."""
        for child in (self.here, self.aside, self.machine, self.server):
            child.kill()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    try:
        require_namespaces()
    except Unsupported as reason:
        pytest.skip(str(reason))
    with Run() as run, Network(run) as network:
        pair = Pair(network, run, tmp_path)
        try:
            assert pair.ask(pair.here, "new 20 first") == "answered"
            assert pair.ask(pair.aside, "new 20 first-aside") == "answered"
            assert [pair.server.line() for _ in range(2)] == ["got first\n", "got first-aside\n"]
            yield pair
        finally:
            pair.close()


def test_a_silent_cut_holds_open_connections_and_lets_no_new_one_come_about(pair: Pair) -> None:
    pair.network.cut("here", "there", Cut.SILENT)
    assert pair.ask(pair.here, "again 0.5 held") == "silent"
    pair.server.say("pushed")
    assert pair.ask(pair.here, "hear 0.5 pushed") == "silent"
    assert pair.ask(pair.aside, "hear 20 pushed") == "answered"
    assert pair.ask(pair.machine, "new 20 from-outside") == "answered"
    pair.network.heal()
    assert pair.ask(pair.here, "hear 20 held") == "answered"  # TCP has sent it again
    assert pair.ask(pair.here, "hear 20 pushed") == "answered"


def test_no_answer_comes_to_a_connect_through_a_silent_cut(pair: Pair) -> None:
    pair.network.cut("there", "here", Cut.SILENT)
    assert pair.ask(pair.here, "new 0.5 closed") == "silent"
    pair.network.heal()
    assert pair.ask(pair.here, "new 20 open") == "answered"


def test_a_cut_of_one_direction_lets_the_other_through(pair: Pair) -> None:
    pair.network.cut("here", "there", Cut.ONE_WAY)
    assert pair.ask(pair.here, "again 0.5 lost") == "silent"
    pair.server.say("pushed")
    assert pair.ask(pair.here, "hear 20 pushed") == "answered"
    pair.network.heal()
    assert pair.ask(pair.here, "hear 20 lost") == "answered"
    assert pair.server.line() == "got lost\n"

    pair.network.cut("there", "here", Cut.ONE_WAY)
    assert pair.ask(pair.here, "again 0.5 arrives") == "silent"
    assert pair.server.line() == "got arrives\n"


def test_what_is_gone_refuses_connects_and_resets_open_connections(pair: Pair) -> None:
    pair.network.cut("here", "there", Cut.GONE)
    assert pair.ask(pair.here, "again 20 refused") == "reset"
    assert pair.ask(pair.here, "new 20 refused") == "refused"
    assert pair.ask(pair.aside, "again 20 aside") == "answered"
    pair.network.heal()
    assert pair.ask(pair.here, "new 20 back") == "answered"


def test_cuts_add_up_and_one_heal_takes_them_all_away(pair: Pair) -> None:
    pair.network.cut("here", "there", Cut.SILENT)
    pair.network.cut("aside", "there", Cut.GONE)
    pair.network.cut("here", "there", Cut.SILENT)
    pair.network.heal()
    pair.network.heal()
    assert pair.ask(pair.here, "again 20 here") == "answered"
    assert pair.ask(pair.aside, "new 20 aside") == "answered"


def test_a_refused_rule_says_what_iptables_said() -> None:
    with pytest.raises(AssertionError, match="iptables"):
        Firewall(["ip", "netns", "exec", "sgchaos0-missing"]).drop("10.231.0.1", incoming=True, outgoing=False)
