"""A cluster in three processes with TLS: made with `sharegroups certs`, used by clients with certificates (CM-60)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError
from share_node.certs import Authority, certs
from sharegroups import Admin, KafkaError, NewTopic, Producer, ShareConsumer
from sharegroups.cli.output import lines_of, pairs
from tests.integration.runtime.test_rpc import FIND
from tests.support.certificates import files_in, install
from tests.support.node import BOUND_S, QUICK, Cluster, unique

ROTATIONS = 2
PROCESSES = 3


class Secure:
    """A cluster whose clients need a certificate, and the settings of one client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        made = CliRunner().invoke(certs, [str(folder), "--client", "alice"])
        assert made.exit_code == 0, made.output
        self.cluster = Cluster(
            QUICK,
            "--processes",
            "--config",
            str(folder / "node.toml"),
            "--log-level",
            "info",
            "--set",
            "log.format=json",
        )

    @property
    def settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self.cluster.bootstrap, **pairs(lines_of(self.folder / "alice.properties"))}

    def work(self, records: int, group: str, topic: str) -> int:
        """Produce records and consume them; returns how many arrived."""
        with Producer(self.settings) as producer:
            for number in range(records):
                producer.send(topic, b"%d" % number)
        with ShareConsumer({**self.settings, "group.id": group}) as consumer:
            consumer.subscribe([topic])
            came: set[bytes | None] = set()
            until = time.monotonic() + BOUND_S
            while len(came) < records and time.monotonic() < until:
                came |= {record.value() for record in consumer.poll(1.0)}
                consumer.commit_sync()
            return len(came)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    found = Secure(tmp_path_factory.mktemp("certs"))
    yield found
    found.cluster.close()


@pytest.mark.rule("CM-60")
def test_records_go_through_three_processes_that_trust_each_other(secure: Secure) -> None:
    topic = unique("tls")
    with Admin(secure.settings) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    assert secure.work(50, unique("g"), topic) == 50


@pytest.mark.rule("CM-60")
def test_who_has_no_certificate_gets_in_nowhere(secure: Secure) -> None:
    plain = {"bootstrap.servers": secure.cluster.bootstrap, "default.api.timeout.ms": "2000"}
    trusting = plain | {"security.protocol": "SSL", "ssl.ca.location": str(secure.folder / "ca.crt")}
    for settings, said in (
        (plain, "security.protocol=SSL is missing here"),
        (trusting, "requires a client certificate"),
    ):
        with Admin(settings) as admin, pytest.raises(KafkaError) as refused:
            admin.list_topics()
        assert said in str(refused.value)


@pytest.mark.rule("CM-60")
def test_the_port_for_nodes_requires_a_certificate_too(secure: Secure) -> None:
    async def call() -> None:
        authority = (secure.folder / "ca.crt").read_bytes()
        for credentials in (None, lambda: grpc.ssl_channel_credentials(authority)):
            transport = GrpcTransport(credentials)
            with pytest.raises(TransportError, match="it closed the new connection at once"):
                await transport.call(secure.cluster.internal, FIND, FIND.request_type(), 5.0)
            await transport.close()

    asyncio.run(call())


@pytest.mark.rule("CM-60", "CM-164")
def test_a_change_is_logged_with_the_principal(secure: Secure) -> None:
    topic = unique("logged")
    with Admin(secure.settings) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    line = next(line for line in secure.cluster.node.errors.splitlines() if f'"{topic}' in line or topic in line)
    assert '"principal": "User:alice"' in line


@pytest.mark.rule("CM-60")
def test_certificates_are_renewed_under_load_without_a_failed_call(secure: Secure) -> None:
    """Each renewal also replaces the authority, as an operator does it: first both are trusted, then the certificates
    are replaced, then only the new authority is trusted. Every process reads the files by itself."""
    topic, group = unique("renewed"), unique("g")
    with Admin(secure.settings) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    files = files_in(secure.folder)
    old, pair = files.authorities.read_bytes(), (files.certificate.read_bytes(), files.key.read_bytes())
    failed: list[str] = []
    came: set[bytes | None] = set()
    sent = 0

    def note(error: Exception | None, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    def reloads() -> int:
        return secure.cluster.node.errors.count("certificates_reloaded")

    with Producer(secure.settings) as producer, ShareConsumer({**secure.settings, "group.id": group}) as consumer:
        consumer.subscribe([topic])
        for _ in range(ROTATIONS):
            made = Authority.made()
            new, alice = made.issue("node", ["127.0.0.1", "localhost"]), made.issue("alice")
            for shown, trusted in (
                (pair, old + made.certificate),
                (new, old + made.certificate),
                (new, made.certificate),
            ):
                before = reloads()
                install(files, shown, trusted)
                if shown is new:
                    (secure.folder / "alice.crt").write_bytes(alice[0])
                    (secure.folder / "alice.key").write_bytes(alice[1])
                until = time.monotonic() + BOUND_S
                while reloads() < before + PROCESSES:
                    assert time.monotonic() < until, secure.cluster.node.errors[-2_000:]
                    producer.produce(topic, b"%d" % sent, on_delivery=note)
                    sent += 1
                    came |= {record.value() for record in consumer.poll(0.05)}
            old, pair = made.certificate, new
            assert secure.work(5, unique("g"), topic) >= 5, "a new client is let in"
        producer.flush(BOUND_S)
        until = time.monotonic() + BOUND_S
        while not came >= {b"%d" % number for number in range(sent)} and time.monotonic() < until:
            came |= {record.value() for record in consumer.poll(0.5)}
    assert failed == []
    assert came >= {b"%d" % number for number in range(sent)}
    assert sent > ROTATIONS
