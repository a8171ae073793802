"""Attacks on TLS before any call: handshakes that are garbage, refused, broken off, or never finished (CM-197)."""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.attack.attacks.connections import PREFACE, held, listeners
from tests.attack.definition import Attack, Target, Who
from tests.support.dial import Dial, tcp

#: The maximum number of connections left half finished at a time; also at most a quarter of this process's limit of
#: descriptors, since a node has the same limit.
HALF_FINISHED_MAX: Final = 4_000
#: The number of garbage handshakes in the attack that is bounded by their number instead of by time.
COUNTED: Final = 100_000
_AT_ONCE: Final = 8
#: The time, in seconds, within which a node must end a handshake that cannot succeed.
_END_S: Final = 25.0
_RENEGOTIATIONS: Final = 20

#: Performs one handshake as the attacker; returns its outcome.
Handshake = Callable[[Target, str, random.Random], str]


def client_hello(dial: Dial) -> bytes:
    """Return the first message of a real handshake."""
    return _begun(dial)[2].read()


def _begun(dial: Dial) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Begin a handshake in memory; return it, what it reads, and what it has written."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = dial.context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return tls, incoming, outgoing


def _garbage(target: Target, address: str, rng: random.Random) -> str:
    """Send bytes that are not TLS, or a ClientHello with changed bytes, and read until the node hangs up."""
    said = rng.choice(("random", "preface", "HTTP", "changed", "length"))
    hello = bytearray(client_hello(target.dial))
    if said == "changed":
        for _ in range(rng.randrange(1, 20)):
            hello[rng.randrange(len(hello))] = rng.randrange(256)
    sent = {
        "random": rng.randbytes(rng.choice((1, 5, 100, 5_000))),
        "preface": PREFACE + rng.randbytes(20),
        "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "changed": bytes(hello),
        "length": bytes(hello[:3]) + b"\xff\xff" + bytes(hello[5:]),
    }[said]
    with tcp(address) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)  # otherwise the node would wait for the rest of some of them
        connection.settimeout(_END_S)
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass
    return said


def _refused_certificate(target: Target, address: str, rng: random.Random) -> str:
    """Finish a handshake with a certificate that no node accepts; not a byte of HTTP/2 may come back."""
    wrong, dial = rng.choice(sorted(target.refused.items()))
    try:
        with dial.connect(address) as connection:
            connection.sendall(PREFACE)
            got = connection.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return wrong
    assert not got, f"a client whose certificate is {wrong} got {got[:40]!r} from {address}"
    return wrong


def _broken_off(target: Target, address: str, rng: random.Random) -> str:
    """Close a connection in the middle of a handshake, before or after the node's reply."""
    _, _, outgoing = _begun(target.dial)
    hello = outgoing.read()
    with tcp(address) as connection:
        if rng.random() < 0.5:
            connection.sendall(hello[: rng.randrange(1, len(hello))])
            return "half a ClientHello"
        connection.sendall(hello)
        connection.settimeout(_END_S)
        connection.recv(rng.choice((1, 100, 16_384)))
        return "after the node's answer"


_HANDSHAKES: Final[tuple[Handshake, ...]] = (_garbage, _refused_certificate, _broken_off)


def _one(target: Target, seed: int, kinds: tuple[Handshake, ...]) -> str:
    rng = random.Random(seed)
    try:
        return rng.choice(kinds)(target, rng.choice(listeners(target)), rng)
    except TimeoutError:
        return "no answer in time"
    except ConnectionError:
        return "connection refused or reset"


def _many(*kinds: Handshake, count: int = 0) -> Callable[[Target, random.Random, float, Path], str]:
    """Repeat handshakes, several at a time, until `count` have been made; without `count`, until the time is up."""

    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        began, came = time.monotonic(), Counter[str]()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while sum(came.values()) < count or (not count and time.monotonic() - began < seconds):
                seeds = [rng.getrandbits(64) for _ in range(10 * _AT_ONCE)]
                came.update(pool.map(lambda seed: _one(target, seed, kinds), seeds))
        slow = came["no answer in time"]
        assert slow <= sum(came.values()) // 100, f"{slow} of {sum(came.values())} handshakes did not end: {came}"
        said = ", ".join(f"{number} {what}" for what, number in came.most_common())
        return f"{sum(came.values())} in {time.monotonic() - began:.0f} s: {said}"

    return run


def _half_finished(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Keep thousands of half-finished handshakes open. Other clients can still connect meanwhile."""
    most = min(HALF_FINISHED_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    hello, deadline, new = client_hello(target.dial), time.monotonic() + seconds, 0
    with held() as connections:
        for address in itertools.islice(itertools.cycle(listeners(target)), most):
            with contextlib.suppress(OSError):
                connections.append(tcp(address))
                connections[-1].sendall(hello[: rng.randrange(len(hello))])
        opened = len(connections)
        while True:
            for address in listeners(target):
                with target.dial.connect(address):
                    new += 1
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
    return f"{opened} half finished handshakes, {new} whole ones beside them"


def _renegotiation(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Request renegotiations in TLS 1.2 with the command `openssl`; a node must refuse all of them, since each would
    cost it far more than the client."""
    deadline, asked = time.monotonic() + seconds, 0
    files = target.dial.security
    while time.monotonic() < deadline or not asked:
        words = [
            "openssl", "s_client", "-connect", rng.choice(listeners(target)), "-tls1_2", "-alpn", "h2",
            "-cert", files["ssl.certificate.location"], "-key", files["ssl.key.location"],
            "-CAfile", files["ssl.ca.location"],
        ]  # fmt: skip
        ended = subprocess.run(
            words, input="R\n" * _RENEGOTIATIONS, capture_output=True, text=True, errors="replace", timeout=_END_S,
            check=False,
        )  # fmt: skip
        assert "Verification: OK" in ended.stdout, f"no connection with TLS 1.2: {ended.stderr[-500:]}"
        granted = ended.stderr.count("RENEGOTIATING")
        assert granted <= 1, f"a node granted {granted - 1} renegotiations: {ended.stderr[-500:]}"
        asked += 1
    return f"{asked} connections asked for another handshake, and got none"


HANDSHAKE_ATTACKS: Final = (
    Attack(
        "half-finished-handshakes",
        "Thousands of handshakes that are left half finished",
        _half_finished,
        Who.STRANGER,
        tls_only=True,
    ),
    Attack(
        "garbage-handshakes",
        "Handshakes that are garbage, broken off, or with a certificate that no node accepts",
        _many(*_HANDSHAKES),
        Who.STRANGER,
        tls_only=True,
    ),
    Attack(
        "renegotiation",
        "Connections that ask for one handshake after another",
        _renegotiation,
        Who.STRANGER,
        tls_only=True,
    ),
)
#: Takes minutes, so it is never drawn at random.
COUNTED_ATTACK: Final = Attack(
    "hundred-thousand-handshakes",
    "The same as garbage-handshakes, 100,000 of them",
    _many(*_HANDSHAKES, count=COUNTED),
    Who.STRANGER,
    tls_only=True,
    by_name_only=True,
)
