"""Many wrong passwords at once: none is accepted, each costs its client time, and others are served."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafka_listener.core.pacing import REFUSED_CREDENTIALS_MS
from kafka_listener.messages.apis import api
from kip932.scram import Mechanism
from shard_runtime.rpc.authentication import PASSWORDS_PER_HOST_MAX
from tests.integration.kafka_listener.listening import listening
from tests.integration.kafka_listener.share_members import address_of, kafka_cluster
from tests.integration.kafka_listener.test_callers import USERS, WHO, principal, scram
from tests.support.kafka_client import KafkaClient
from tests.support.node import BOUND_S, Cluster, unique

HANDSHAKE, AUTHENTICATE = api("SaslHandshake"), api("SaslAuthenticate")
SHA_256 = Mechanism.SCRAM_SHA_256
REFUSED = 58
#: How many passwords are guessed: with SCRAM, and with PLAIN, which costs the node ten milliseconds each.
GUESSES: Final = {"SCRAM-SHA-256": 9_000, "PLAIN": 1_000}
AT_ONCE: Final = 50
#: How much the node may grow meanwhile, MB, and how many lines it may log.
GROWTH_MB, LINES = 100, 200


async def guess(port: int, mechanism: str, number: int) -> tuple[str, float]:
    """Guess alice's password once. Return how it ended, and after how many seconds."""
    try:
        async with await KafkaClient.connect(port) as client:
            assert (await client.ask("SaslHandshake", 1, HANDSHAKE.request(mechanism=mechanism))).error_code == 0
            said = f"\0alice\0guess{number}".encode()
            if mechanism != "PLAIN":
                first = AUTHENTICATE.request(auth_bytes=f"n,,n=alice,r=nonce{number}".encode())
                nonce = (await client.ask("SaslAuthenticate", 2, first)).auth_bytes.split(b",")[0]
                said = b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="
            began_s = time.monotonic()
            response = await client.ask("SaslAuthenticate", 2, AUTHENTICATE.request(auth_bytes=said))
            took_s = time.monotonic() - began_s
            assert await client.closed() == b""
            return str(response.error_code), took_s
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed", 1.0


@pytest.mark.rule("KL-25", "KL-21")
@pytest.mark.asyncio
async def test_a_password_that_cannot_be_checked_now_ends_the_connection_without_an_answer() -> None:
    async with listening(WHO, users=USERS) as node:
        guesses = asyncio.gather(*(guess(node.port, "PLAIN", number) for number in range(3 * PASSWORDS_PER_HOST_MAX)))
        async with await KafkaClient.connect(node.port) as alice:
            response, _ = await scram(alice, SHA_256, "alice", "secret")
            assert (response.error_code, await principal(alice)) == (0, "User:alice")
        ended = Counter(how for how, _ in await guesses)
        assert set(ended) == {str(REFUSED), "closed"}
        assert ended[str(REFUSED)] >= PASSWORDS_PER_HOST_MAX
        assert node.refused == {"authentication": 3 * PASSWORDS_PER_HOST_MAX}


async def guess_all(port: int, ended: Counter[str], times: list[float]) -> None:
    left = [(mechanism, number) for mechanism, count in GUESSES.items() for number in range(count)]

    async def one() -> None:
        while left:
            how, took_s = await guess(port, *left.pop())
            ended[how] += 1
            times.append(took_s)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


def right(cluster: Cluster, topic: str) -> None:
    """Store a record as alice, over new connections."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address_of(cluster),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "log_level": 0,
        }
    )
    producer.produce(topic, b"v", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert (producer.flush(BOUND_S), failed) == (0, [])


def resident_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) // 1024


@pytest.mark.rule("KL-25", "KL-9", "CM-190")
def test_ten_thousand_wrong_passwords_let_no_one_in_and_keep_no_one_out() -> None:
    with kafka_cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": address_of(cluster), "log_level": 0})
        topic = unique("topic")
        admin.create_topics([NewTopic(topic, 1)])[topic].result(BOUND_S)
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        added = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", secret, b"secret")])
        added["alice"].result(BOUND_S)
        right(cluster, topic)
        (pid,) = cluster.ready["pids"].values()
        before_mb, before_lines = resident_mb(pid), len(cluster.node.errors.splitlines())
        ended, times = Counter[str](), list[float]()
        port = int(address_of(cluster).rpartition(":")[2])
        guessing = threading.Thread(target=lambda: asyncio.run(guess_all(port, ended, times)))
        guessing.start()
        rounds = 0
        while guessing.is_alive():
            right(cluster, topic)
            rounds += 1
            guessing.join(1)
        assert rounds > 1
        assert ended.total() == sum(GUESSES.values())
        assert set(ended) <= {str(REFUSED), "closed"}
        assert ended[str(REFUSED)] >= GUESSES["SCRAM-SHA-256"]
        assert min(times) >= 0.95 * REFUSED_CREDENTIALS_MS / 1000  # clocks have their own steps
        assert resident_mb(pid) - before_mb < GROWTH_MB
        assert len(cluster.node.errors.splitlines()) - before_lines < LINES
        right(cluster, topic)
