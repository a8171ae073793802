"""Requests, answers and authentication that overlap in ways no ordinary client makes them overlap."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafka_listener.authentication import Authenticator, Checks
from kafka_listener.connection import BEGUN_AT_ONCE
from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from shard_runtime.rpc.authentication import Authentication, Identity
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.passwords import Passwords
from share_node.certs import Authority
from tests.integration.kafka_listener.listening import SHORT, at_once, listening
from tests.integration.kafka_listener.test_callers import REFUSED, USERS, WHO, begin, client_context
from tests.support.certificates import node_files
from tests.support.kafka_client import KafkaClient, frame

METADATA, AUTHENTICATE = api("Metadata"), api("SaslAuthenticate")


@pytest.mark.rule("KL-12", "KL-4")
@pytest.mark.asyncio
async def test_many_questions_in_an_unknown_version_at_once_are_all_answered() -> None:
    unknown = frame("ApiVersions", 0)
    asked = b"".join(
        unknown[:6] + (99).to_bytes(2, "big") + number.to_bytes(4, "big") + unknown[12:] for number in range(2_000)
    )
    async with listening() as node, await KafkaClient.connect(node.port) as client:
        client.writer.write(asked)
        for number in range(2_000):
            came, response = await client.answer("ApiVersions", 0)
            assert (came, response.error_code) == (number, 35)


@pytest.mark.rule("KL-17")
@pytest.mark.asyncio
async def test_of_two_throttled_answers_the_longer_time_counts() -> None:
    begun = []
    times_ms = [200, 600, 0]

    async def throttled(request: Any, version: int, connection: Connection) -> Any:
        begun.append(asyncio.get_running_loop().time())
        throttle_ms = times_ms[len(begun) - 1]
        if throttle_ms > 200:
            await asyncio.sleep(0.05)
        return METADATA.response(throttle_time_ms=throttle_ms)

    async with listening({"Metadata": throttled}) as node, await KafkaClient.connect(node.port) as client:
        client.send("Metadata", 13)
        client.send("Metadata", 13)
        for _ in range(2):
            await client.answer("Metadata", 13)
        await client.ask("Metadata", 13)
        assert begun[2] - begun[1] >= 0.64


@pytest.mark.rule("KL-2", "KL-20")
@pytest.mark.asyncio
async def test_a_caller_that_becomes_known_while_it_waits_for_room_gives_back_what_it_took() -> None:
    async with listening(WHO, users=USERS, budget_bytes=1_000_000, limits=SHORT) as node:
        async with await KafkaClient.connect(node.port) as client:
            await begin(client, "PLAIN")
            holder = node.server.gate.holder("another", Identity("User:another", ""))
            node.server.budget.add(holder, 1_000_000)
            said = frame("SaslAuthenticate", 2, AUTHENTICATE.request(auth_bytes=b"\0alice\0secret"), number=2)
            client.writer.write(said + frame("Metadata", 13, number=3)[:-1])
            assert (await client.answer("SaslAuthenticate", 2))[1].error_code == 0
            node.server.budget.give(holder, 1_000_000)
            client.writer.write(frame("Metadata", 13, number=3)[-1:])
            assert (await client.answer("Metadata", 13))[1].cluster_id == "User:alice"
        await node.idle()
        assert (node.server.budget.held_by("User:alice"), node.server.budget.above_share()) == (0, {})


@pytest.mark.rule("KL-22", "KL-25")
@pytest.mark.asyncio
async def test_of_passwords_that_are_sent_at_once_only_the_first_is_checked() -> None:
    async with listening(WHO, users=USERS) as node:
        async with await KafkaClient.connect(node.port) as client:
            await begin(client, "PLAIN")
            for password in ("wrong", "guessed", "secret"):
                said = AUTHENTICATE.request(auth_bytes=f"\0alice\0{password}".encode())
                client.send("SaslAuthenticate", 2, said)
            client.send("Metadata", 13)
            assert (await client.answer("SaslAuthenticate", 2))[1].error_code == REFUSED
            assert await client.closed() == b""
        assert (node.refused, node.listener.counts.requests) == (
            {"authentication": 1},
            {"SaslHandshake": 1, "SaslAuthenticate": 1},
        )


@pytest.mark.rule("KL-22")
@pytest.mark.asyncio
async def test_a_request_that_is_sent_at_once_with_a_handshake_does_not_slip_in_before_it() -> None:
    async with listening(WHO, users=USERS) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.send("SaslHandshake", 1, api("SaslHandshake").request(mechanism="PLAIN"))
            client.send("Metadata", 13)
            assert (await client.answer("SaslHandshake", 1))[1].error_code == 0
            assert await client.closed() == b""
        assert node.refused == {"unauthenticated": 1}


@pytest.mark.rule("KL-22", "KL-4")
@pytest.mark.asyncio
async def test_a_whole_exchange_and_a_request_after_it_may_be_sent_at_once() -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        client.send("SaslHandshake", 1, api("SaslHandshake").request(mechanism="PLAIN"))
        client.send("SaslAuthenticate", 2, AUTHENTICATE.request(auth_bytes=b"\0alice\0secret"))
        client.send("Metadata", 13)
        for name, version in (("SaslHandshake", 1), ("SaslAuthenticate", 2)):
            assert (await client.answer(name, version))[1].error_code == 0
        assert (await client.answer("Metadata", 13))[1].cluster_id == "User:alice"


@pytest.mark.rule("KL-23")
@pytest.mark.asyncio
async def test_credentials_that_are_accepted_after_the_connection_was_lost_are_not_watched() -> None:
    passwords = Passwords()
    passwords.follow(USERS)
    checked = Authentication()
    checked.take_passwords(passwords.check, lambda: passwords.version)
    one = Authenticator(Checks(checked, passwords), "127.0.0.1", tls=False, certificate=None, revoked=lambda _: None)
    one.handshake(api("SaslHandshake").request(mechanism="PLAIN"))
    answering = asyncio.ensure_future(one.authenticate(AUTHENTICATE.request(auth_bytes=b"\0alice\0secret")))
    await asyncio.sleep(0)
    one.close()
    await answering
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "kafka-credentials"] == []
    passwords.close()


@pytest.mark.rule("KL-4")
@pytest.mark.asyncio
async def test_of_many_requests_at_once_few_begin_in_one_turn_of_the_event_loop() -> None:
    turn = 0
    begun = Counter[int]()

    async def noted(request: Any, version: int, connection: Connection) -> Any:
        begun[turn] += 1
        return METADATA.response()

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async with listening({"Metadata": noted}) as node, await KafkaClient.connect(node.port) as client:
        counting = asyncio.ensure_future(count())
        client.writer.write(b"".join(frame("Metadata", 13, number=number) for number in range(1_000)))
        for number in range(1_000):
            assert (await client.answer("Metadata", 13))[0] == number
        counting.cancel()
    assert max(begun.values()) == BEGUN_AT_ONCE


LARGE_BYTES = 30_000_000


async def large(request: Any, version: int, connection: Connection) -> Any:
    return METADATA.response(topics=[METADATA.response.MetadataResponseTopic(name="y" * 30_000)] * 1_000)


@pytest.mark.rule("KL-14", "KL-2", "KL-26")
@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.asyncio
async def test_an_answer_that_is_not_read_counts_and_closes_its_connection_also_with_tls(
    tmp_path: Path, secured: bool
) -> None:
    authority = Authority.made()
    certificates = NodeCertificates(node_files(tmp_path, authority)) if secured else None
    context = client_context(authority, tmp_path) if secured else None
    async with listening({"Metadata": large}, certificates=certificates, limits=SHORT) as node:
        async with await KafkaClient.connect(node.port, context) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one that reads
            client.send("Metadata", 12)
            async with asyncio.timeout(10):
                while node.held < LARGE_BYTES:  # noqa: ASYNC110 - nothing says so
                    await asyncio.sleep(0.01)
                while not node.refused:
                    assert node.held >= LARGE_BYTES
                    await asyncio.sleep(0.01)
        assert node.refused == {"unread": 1}
        await node.idle()


@pytest.mark.rule("KL-14", "KL-7", "KL-26")
@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.asyncio
async def test_answers_that_are_read_slowly_come_whole_although_the_node_leaves(tmp_path: Path, secured: bool) -> None:
    authority = Authority.made()
    certificates = NodeCertificates(node_files(tmp_path, authority)) if secured else None
    context = client_context(authority, tmp_path) if secured else None
    async with (
        listening({"Metadata": large}, certificates=certificates) as node,
        await KafkaClient.connect(node.port, context) as client,
    ):
        client.send("Metadata", 12)
        first = b""
        for _ in range(20):
            first += await client.reader.readexactly(LARGE_BYTES // 40)
            await asyncio.sleep(0.01)
        draining = asyncio.ensure_future(node.listener.drain(10))
        rest = await client.closed()
        await draining
        size = int.from_bytes(first[:4], "big")
        assert len(first) + len(rest) == 4 + size > LARGE_BYTES


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # uvloop drops one that is accepted as that is cancelled
@pytest.mark.rule("KL-7", "KL-8")
def test_a_listener_that_leaves_while_clients_connect_ends_and_keeps_no_connection() -> None:
    """On the event loop that nodes use: there, a connection whose opening is cancelled gets no `connection_lost`."""

    async def leave(turns: int) -> tuple[int, int]:
        async with listening({"Metadata": at_once}) as node:
            clients = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(10)]
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await node.listener.drain(0.1)
            for client in clients:
                client.close()
            return node.listener.connections, node.held

    for turns in range(16):
        assert uvloop.run(leave(turns)) == (0, 0)
