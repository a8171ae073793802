"""The links of the driver `proxy`: each fault has its documented effect."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.drivers.children import Child
from tests.chaos.drivers.echo import Asker
from tests.chaos.drivers.processes import LOOPBACK
from tests.chaos.drivers.runs import Run
from tests.chaos.drivers.stores import Address
from tests.chaos.drivers.tcp_proxy import Link, Switchboard


class Linked:
    """An echo server in a separate process, a link to it, and a client of the link."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        run = stack.enter_context(Run())
        target = Address(LOOPBACK, run.port())
        command = [sys.executable, "-m", "tests.chaos.drivers.echo", "serve", LOOPBACK, str(target.port)]
        self.server = Child("serve", command, folder / "serve.log", run.environment)
        stack.callback(self.server.kill)
        self.server.launch()
        assert self.server.line() == "ready\n"
        self.board = stack.enter_context(Switchboard())
        self.link: Link = self.board.link(Address(LOOPBACK, run.port()), target)
        self.client = Asker(*self.link.listen)
        stack.callback(self.client.close)
        assert self.client.new(20, "first") == "answered"
        assert self.server.line() == "got first\n"

    def another(self, stack: ExitStack) -> Asker:
        """Return one more client."""
        asker = Asker(*self.link.listen)
        stack.callback(asker.close)
        return asker


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def linked(stack: ExitStack, tmp_path: Path) -> Linked:
    return Linked(stack, tmp_path)


def test_a_held_link_keeps_connections_open_and_passes_what_it_held_when_it_is_healed(linked: Linked) -> None:
    linked.link.hold(there=True, back=True)
    assert linked.client.again(0.3, "held") == "silent"
    linked.server.say("pushed")
    assert linked.client.hear(0.3, "pushed") == "silent"
    linked.link.heal()
    assert linked.client.hear(20, "held") == "answered"
    assert linked.client.hear(20, "pushed") == "answered"


def test_a_new_connection_through_a_held_link_gets_nowhere_until_it_is_healed(linked: Linked, stack: ExitStack) -> None:
    linked.link.hold(there=False, back=True)  # a handshake needs both directions
    late = linked.another(stack)
    assert late.new(0.3, "late") == "silent"
    assert linked.client.again(0.3, "arrives") == "silent"
    assert linked.server.line() == "got arrives\n"  # and not the new connection's word, which was sent earlier
    linked.link.heal()
    assert late.hear(20, "late") == "answered"


def test_a_link_held_in_one_direction_passes_the_other(linked: Linked) -> None:
    linked.link.hold(there=True, back=False)
    assert linked.client.again(0.3, "lost") == "silent"
    linked.server.say("pushed")
    assert linked.client.hear(20, "pushed") == "answered"
    linked.link.heal()
    assert linked.client.hear(20, "lost") == "answered"


def test_neither_end_learns_through_a_held_link_that_the_other_is_gone(linked: Linked) -> None:
    linked.link.hold(there=True, back=True)
    linked.server.kill()
    assert linked.client.again(0.3, "half-open") == "silent"
    linked.link.heal()
    assert linked.client.hear(20, "half-open") == "reset"


def test_a_refusing_link_resets_connections_and_keeps_its_port(linked: Linked) -> None:
    linked.link.refuse()
    linked.link.refuse()
    assert linked.client.hear(20, "never") == "reset"
    assert linked.client.new(20, "never") == "refused"
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind(linked.link.listen)
    linked.link.heal()
    assert linked.client.new(20, "back") == "answered"


def test_a_delay_is_added_to_what_goes_there_and_ends_with_heal(linked: Linked) -> None:
    linked.link.delay(400)
    began = time.monotonic()
    assert linked.client.again(20, "slow") == "answered"
    assert time.monotonic() - began >= 0.4
    linked.link.delay(60_000)
    linked.link.heal()
    assert linked.client.again(20, "quick") == "answered"  # in less than a minute


def test_a_lost_reply_leaves_the_request_carried_out_and_the_connection_reset(linked: Linked, stack: ExitStack) -> None:
    struck = linked.link.lose_reply(b"this-one")
    assert linked.client.again(20, "another") == "answered"
    assert linked.client.again(20, "this-one") == "reset"
    assert struck.wait(20)
    assert [linked.server.line() for _ in range(2)] == ["got another\n", "got this-one\n"]
    assert linked.client.new(20, "this-one") == "answered"  # only one reply is lost


def test_a_reply_that_was_to_be_lost_is_not_after_heal(linked: Linked) -> None:
    struck = linked.link.lose_reply(b"word")
    linked.link.heal()
    assert linked.client.again(20, "word") == "answered"
    assert not struck.is_set()


def test_a_client_is_reset_where_no_server_listens_behind_the_link(linked: Linked) -> None:
    linked.server.kill()
    assert linked.client.hear(20, "never") == "reset"
    assert linked.client.new(20, "never") == "reset"


def test_a_connection_that_is_reset_before_its_end_has_read_is_reset(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the client is still waiting for the handshake, the kernel reports the reset as its outcome."""

    def reset_at_once(*_: object) -> socket.socket:
        raise ConnectionResetError

    monkeypatch.setattr(socket, "create_connection", reset_at_once)
    assert linked.client.new(20, "never") == "reset"


def test_much_passes_in_both_directions_and_unchanged(linked: Linked) -> None:
    sent = bytes(random.Random(1).choices(b" \t\n", k=2_000_000))  # whitespace only: the server would report words
    heard = bytearray()
    with socket.create_connection(linked.link.listen, 20) as client:
        client.settimeout(60)
        for end in range(100_000, len(sent) + 1, 100_000):
            client.sendall(sent[end - 100_000 : end])
            while len(heard) < end:
                heard += client.recv(65_536)
    assert bytes(heard) == sent
