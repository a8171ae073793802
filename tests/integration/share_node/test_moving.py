"""Connections that end at a maximum age, under load: clients move to new ones with their current certificates, and
clients that are no longer trusted are disconnected (CM-194, PL-533, PL-534, CL-144).

Of CL-144, these tests show that clients of both streams move without an error, a lost record or a second delivery,
and that the new connection has the new certificates (d). tests/unit/sharegroups/aio/test_moving.py shows that no
request overtakes another (a), when the old stream is closed (b), what follows if it breaks first (c), and that a
producer's next request goes over the new stream (e). No test shows that a replaced connection is closed after 2
minutes even if it still has calls, that calls that are not streams use new files within a second (d), or that a
producer that has no request does nothing more (e).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from share_node.certs import Authority
from sharegroups import KafkaError, NewTopic, Worker
from sharegroups.aio import Admin, Producer, ShareConsumer
from sharegroups.connection.leader_stream import LeaderStream
from sharegroups.consuming.share_session import ShareSession
from sharegroups.messages import AcknowledgeType
from tests.integration.share_node.test_access import FLAGS, Node, running
from tests.support.certificates import files_in, install
from tests.support.node import BOUND_S

pytestmark = pytest.mark.asyncio

AGE_S = 1.0
ROTATIONS = 10
#: Longer than clients need to notice new files, in seconds.
NOTICED_S = 1.2
#: A client that is no longer trusted is disconnected after its connection's maximum age and a grace of the same length.
#: This is how often another client, which moves once per age, may have moved by then. It would be 30 with a grace of
#: 30 s, or if the records were free only at the end of the lock.
OUT_AFTER = 10


class Place:
    """The certificates of a node and of clients, in a folder, all issued by one CA at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.made()
        for name in ("node", "alice", "mallory"):
            (folder / name).mkdir()
            self.issue(name)

    def issue(self, name: str) -> None:
        """Give the node or a client a new certificate from the current CA, the only one that it trusts."""
        install(files_in(self.folder / name), self._pair(name), self.authority.certificate)

    def _pair(self, name: str) -> tuple[bytes, bytes]:
        return self.authority.issue(name, ["127.0.0.1"] if name == "node" else [])

    def flags(self) -> dict[str, str]:
        """Return the settings of a node that requires certificates."""
        files = files_in(self.folder / "node")
        return {
            **{name: value for name, value in FLAGS.items() if name not in {"access.control.enable", "super.users"}},
            "ssl.client.auth": "required",
            "ssl.certificate.location": str(files.certificate),
            "ssl.key.location": str(files.key),
            "ssl.ca.location": str(files.authorities),
            "connections.max.age.ms": str(int(AGE_S * 1000)),
        }

    def client(self, node: Node, name: str, **more: str) -> dict[str, Any]:
        """Return the settings of a client."""
        files = files_in(self.folder / name)
        return {
            "bootstrap.servers": node.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(files.authorities),
            "ssl.certificate.location": str(files.certificate),
            "ssl.key.location": str(files.key),
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    async def rotate(self, node: Node) -> None:
        """Replace the CA and all certificates in the order that an operator would use, and wait for all to notice."""
        old, self.authority = self.authority, Authority.made()
        both = old.certificate + self.authority.certificate
        assert node.process.certificates is not None
        for names, renewed, trusted in (
            (("node", "alice"), False, both),
            (("node", "alice"), True, both),
            (("node", "alice"), False, self.authority.certificate),
        ):
            for name in names:
                files = files_in(self.folder / name)
                shown = files.certificate.read_bytes(), files.key.read_bytes()
                install(files, self._pair(name) if renewed else shown, trusted)
            assert node.process.certificates.reload()
            await asyncio.sleep(NOTICED_S)


class Load:
    """A producer, a consumer and a worker that run until `stop`; each group should receive each record once."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self.sent = 0
        self.failures: list[str] = []
        self.consumed: Counter[bytes | None] = Counter()
        self.worked: Counter[bytes] = Counter()
        self.counts: set[int | None] = set()
        self._stopped = asyncio.Event()

    async def produce(self) -> None:
        async with Producer(self._settings) as producer:
            while not self._stopped.is_set():
                value = b"%d" % self.sent
                self.sent += 1  # before the call: who waits for all records must wait for this one, too
                try:
                    await producer.send("t", value)
                except Exception as error:
                    self.failures.append(f"send: {error!r}")
                await asyncio.sleep(0.01)

    async def consume(self) -> None:
        settings = self._settings | {"group.id": "g", "share.acknowledgement.mode": "explicit"}
        async with ShareConsumer(settings) as consumer:
            consumer.set_acknowledgement_commit_callback(self._acknowledged)
            consumer.subscribe(["t"])
            while not self._stopped.is_set() or len(self.consumed) < self.sent:
                for message in await consumer.poll(0.2):
                    self.consumed[message.value()] += 1
                    self.counts.add(message.delivery_count())
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                consumer.commit_async()

    def _acknowledged(self, offsets: object, error: Exception | None) -> None:
        if error is not None:
            self.failures.append(f"acknowledge: {error!r}")

    async def work(self) -> None:
        worker = Worker({"group.id": "w", **self._settings}, concurrency=20)

        @worker.job("t")
        async def job(message: Any) -> None:
            self.worked[bytes(message)] += 1
            await asyncio.sleep(AGE_S * 1.5 if self.worked.total() % 50 == 0 else 0.01)

        serving = asyncio.ensure_future(worker.serve())
        await self._stopped.wait()
        while len(self.worked) < self.sent:  # noqa: ASYNC110 - the worker has no event for it
            await asyncio.sleep(0.05)
        await asyncio.sleep(AGE_S * 1.6)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all three, and at the end wait until every record sent has been received."""
        tasks = [asyncio.ensure_future(each) for each in (self.produce(), self.consume(), self.work())]
        try:
            yield
            self._stopped.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 20)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often streams of clients have moved, by method."""
    found: Counter[str] = Counter()
    leave = LeaderStream._leave

    async def counted(link: LeaderStream[Any, Any], stream: Any) -> None:
        await leave(link, stream)
        found[link._method.name] += 1

    monkeypatch.setattr(LeaderStream, "_leave", counted)
    return found


async def _created(settings: dict[str, Any]) -> None:
    async with Admin(settings) as admin:
        await admin.create_topics([NewTopic("t", 1), NewTopic("ticks", 1)])


@contextlib.asynccontextmanager
async def _loaded(place: Place) -> AsyncIterator[tuple[Node, Load]]:
    """Run a node under load; afterwards check that no call failed and no record was lost or delivered twice."""
    async with running(place.flags()) as node:
        await _created(place.client(node, "alice"))
        load = Load(place.client(node, "alice"))
        async with load.running():
            yield node, load
        assert load.failures == []
        sent = {b"%d" % number for number in range(load.sent)}
        assert (set(load.consumed), set(load.worked)) == (sent, sent)
        assert {value: n for value, n in load.consumed.items() if n > 1} == {}
        assert {value: n for value, n in load.worked.items() if n > 1} == {}
        assert load.counts == {1}


@pytest.mark.rule("CM-194", "PL-533", "PL-534", "CL-144")
async def test_certificates_are_replaced_ten_times_without_a_failed_call(tmp_path: Path, moves: Counter[str]) -> None:
    place = Place(tmp_path)
    async with _loaded(place) as (node, _):
        for _ in range(ROTATIONS):
            await place.rotate(node)
    assert moves["ProduceStream"] >= ROTATIONS
    assert moves["ShareStream"] >= 2 * ROTATIONS


@pytest.mark.rule("CM-194", "PL-533", "CL-144")
async def test_records_that_an_application_holds_stay_its_own_over_a_move(tmp_path: Path, moves: Counter[str]) -> None:
    place = Place(tmp_path)
    async with running(place.flags()) as node:
        settings = place.client(node, "alice")
        await _created(settings)
        async with Producer(settings) as producer, _consumer(settings) as one, _consumer(settings) as other:
            await producer.send("t", b"v")
            one.subscribe(["t"])
            (held,) = await one.poll(5)
            other.subscribe(["t"])
            while not moves["ShareStream"]:  # `one` is not polled meanwhile
                assert not list(await other.poll(0.1))
            one.acknowledge(held, AcknowledgeType.ACCEPT)
            assert [error for error in (await one.commit_sync()).values() if error is not None] == []
            await producer.send("t", b"w")
            assert [message.value() for message in await other.poll(5)] == [b"w"]


def _consumer(settings: dict[str, Any]) -> ShareConsumer:
    return ShareConsumer(settings | {"group.id": "g", "share.acknowledgement.mode": "explicit"})


async def _tick(producer: Producer) -> None:
    """Send records, so that the producer moves once per age: a clock that is as slow as the machine."""
    while True:
        await producer.send("ticks", b"")
        await asyncio.sleep(0.05)


@pytest.mark.rule("CM-194", "CM-60")
@pytest.mark.parametrize("moves_when_asked", [True, False])
async def test_who_may_not_connect_any_more_is_out_and_its_records_go_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: Counter[str], moves_when_asked: bool
) -> None:
    place, strangers = Place(tmp_path), Authority.made()
    trusted = place.authority.certificate
    files, nodes = files_in(tmp_path / "mallory"), files_in(tmp_path / "node")
    install(files, strangers.issue("mallory"), trusted)
    nodes.authorities.write_bytes(trusted + strangers.certificate)
    if not moves_when_asked:
        monkeypatch.setattr(ShareSession, "_move", lambda session: None)
    async with running(place.flags()) as node:
        assert node.process.certificates is not None
        settings = place.client(node, "alice")
        await _created(settings)
        async with Producer(settings) as producer, _consumer(settings) as other:
            mallory = _consumer(place.client(node, "mallory"))
            await producer.send("t", b"v")
            mallory.subscribe(["t"])
            (first,) = await mallory.poll(5)
            nodes.authorities.write_bytes(trusted)
            assert node.process.certificates.reload()
            ticking, before = asyncio.ensure_future(_tick(producer)), moves["ProduceStream"]
            other.subscribe(["t"])
            (again,) = await other.poll(BOUND_S)
            assert again.delivery_count() == 2
            ticking.cancel()
            assert moves["ProduceStream"] - before <= OUT_AFTER
            mallory.acknowledge(first, AcknowledgeType.ACCEPT)
            assert any((await mallory.commit_sync()).values()), "the acknowledgement of a disconnected client must fail"
            with contextlib.suppress(KafkaError):
                assert not list(await mallory.poll(0.3))
            await mallory.close(0.1)
