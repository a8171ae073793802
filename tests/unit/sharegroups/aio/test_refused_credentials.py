"""A client whose token or password is not accepted, at the start or later, and which has no newer one: it reports that
once, retries after a back-off, and continues by itself once it is accepted (CL-158)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.aio import Producer
from sharegroups.errors import RequestTimedOutError, SaslAuthenticationFailedError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport
from tests.unit.sharegroups.aio.test_rights import polls
from tests.unit.sharegroups.consuming.test_heartbeats import BEAT, member


class Refusing(HookedTransport):
    """Refuses all calls and streams while `expired`; `expire` also ends the open streams."""

    expired = False
    asked_in_vain = 0

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        self._check(address)
        return await super().call(address, method, request, timeout_s)

    async def open_stream(self, address: str, method: Any) -> Any:
        self._check(address)
        return await super().open_stream(address, method)

    def expire(self) -> None:
        self.expired = True
        for stream in list(self._streams):
            stream.abort(TransportStatus.UNAUTHENTICATED, "the token expired at 2026-01-01T00:00:00Z")

    def _check(self, address: str) -> None:
        if self.expired:
            self.asked_in_vain += 1
            raise TransportError(TransportStatus.UNAUTHENTICATED, address, "the token expired at 2026-01-01T00:00:00Z")


@pytest.mark.rule("CL-158", "CL-16")
@on_fake_cluster()
async def test_a_consumer_says_so_once_tries_slowly_and_goes_on(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    transport = Refusing(fake)
    async with member(fake, transport) as c:
        produce(fake)
        assert await polls(c, 2) == (["t:v0"], [])
        for _ in range(2):
            produce(fake)
            transport.expire()
            transport.asked_in_vain = 0
            values, errors = await polls(c, 30)
            assert values == []
            assert [type(error) for error in errors] == [SaslAuthenticationFailedError]
            assert "the token expired at 2026" in errors[0].message
            assert transport.asked_in_vain <= 150, "each loop of the consumer must retry about once a second"
            transport.expired = False
            began = now_s()
            assert (await polls(c, 3))[0]
            assert now_s() - began <= 3.1
        assert caplog.messages.count("this consumer may call its nodes again, and continues") == 2
        assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []
        beats = transport.calls(BEAT)
        assert [one.request.member_epoch for one in beats].count(0) == 1, "the consumer must keep its membership"


@pytest.mark.rule("CL-158", "CL-16")
@on_fake_cluster()
async def test_a_consumer_that_was_never_accepted_joins_once_it_is(fake: FakeCluster) -> None:
    transport = Refusing(fake)
    transport.expired = True
    produce(fake)
    async with member(fake, transport) as c:
        values, errors = await polls(c, 20)
        assert (values, [type(error) for error in errors]) == ([], [SaslAuthenticationFailedError])
        transport.expired = False
        assert len((await polls(c, 3))[0]) == 1


def _producer(fake: FakeCluster, transport: Refusing, **settings: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": fake.bootstrap, "delivery.timeout.ms": 20_000} | settings, transport=transport
    )


@pytest.mark.rule("CL-158")
@pytest.mark.parametrize("from_the_start", [True, False])
@on_fake_cluster()
async def test_a_producer_with_a_file_keeps_its_records_until_a_newer_token_comes(
    fake: FakeCluster, tmp_path: Path, from_the_start: bool
) -> None:
    transport = Refusing(fake)
    transport.expired = from_the_start
    file = str(tmp_path / "token")
    async with _producer(fake, transport, **{"sasl.oauthbearer.token.location": file}) as p:
        if not from_the_start:
            await p.send("t", b"first")
            transport.expire()
        sending = asyncio.ensure_future(p.send("t", b"second"))
        await asyncio.sleep(10)
        assert not sending.done()
        transport.expired = False
        assert (await sending).offset() == (0 if from_the_start else 1)
        transport.expire()
        began = now_s()
        with pytest.raises(RequestTimedOutError, match="the token expired at"):
            await p.send("t", b"third")
        assert now_s() - began == pytest.approx(20, abs=1.5)
        transport.expired = False


@pytest.mark.rule("CL-158")
@on_fake_cluster()
async def test_a_producer_whose_token_cannot_change_fails_its_records_at_once(fake: FakeCluster) -> None:
    transport = Refusing(fake)
    async with _producer(fake, transport, **{"sasl.oauthbearer.token": "t"}) as p:
        await p.send("t", b"first")
        transport.expire()
        began = now_s()
        with pytest.raises(SaslAuthenticationFailedError, match="the token expired at"):
            await p.send("t", b"second")
        assert now_s() - began < 1
        transport.expired = False
        assert (await p.send("t", b"third")).offset() == 1


async def _paid(p: Producer, value: bytes) -> None:
    async with p.transaction():
        await p.send("t", value)


@pytest.mark.rule("CL-158", "CL-102")
@on_fake_cluster()
async def test_a_transactional_producer_with_a_file_waits_for_a_newer_token_to_begin_and_to_commit(
    fake: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Refusing(fake)
    settings = {"sasl.oauthbearer.token.location": str(tmp_path / "token"), "transactional.id": "pay"}
    async with _producer(fake, transport, **settings, **{"default.api.timeout.ms": 20_000}) as p:
        transport.expired = True
        paying = asyncio.ensure_future(_paid(p, b"first"))
        await asyncio.sleep(10)
        assert not paying.done()
        assert transport.asked_in_vain <= 50
        transport.expired = False
        await paying
        assert [committed for _, committed in fake.transactions.ended] == [True]
        await _begun(p)
        transport.expire()
        ending = asyncio.ensure_future(p.end_transaction(commit=True))
        await asyncio.sleep(10)
        assert not ending.done()
        transport.expired = False
        await ending
        await _begun(p)
        transport.expire()
        with pytest.raises(RequestTimedOutError, match=r"does not accept this client .*the token expired at"):
            await p.end_transaction(commit=True)
        transport.expired = False
        await _paid(p, b"last")
    assert [committed for _, committed in fake.transactions.ended] == [True] * 4
    assert "the transaction in doubt was committed" in caplog.messages
    waits = [message for message in caplog.messages if "does not accept this client" in message and "waits" in message]
    assert len(waits) == 3
    assert not any("no cluster answers" in message for message in caplog.messages)


async def _begun(p: Producer) -> None:
    """Begin a transaction with a record that is stored."""
    await p.begin_transaction()
    await p.send("t", b"v")


@pytest.mark.rule("CL-158", "CL-102")
@on_fake_cluster()
async def test_a_transactional_producer_whose_token_cannot_change_is_refused_at_once_and_its_commit_is_in_doubt(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Refusing(fake)
    async with _producer(fake, transport, **{"sasl.oauthbearer.token": "t", "transactional.id": "pay"}) as p:
        transport.expired = True
        with pytest.raises(SaslAuthenticationFailedError, match="the token expired at"):
            await p.begin_transaction()
        transport.expired = False
        await _begun(p)
        transport.expire()
        with pytest.raises(SaslAuthenticationFailedError, match="the token expired at"):
            await p.end_transaction(commit=True)
        with pytest.raises(SaslAuthenticationFailedError):
            await p.begin_transaction()
        transport.expired = False
        await _paid(p, b"next")
    assert [committed for _, committed in fake.transactions.ended] == [True, True]
    assert "the transaction in doubt was committed" in caplog.messages


@pytest.mark.rule("CL-158")
@on_fake_cluster()
async def test_a_producer_that_waits_for_metadata_says_that_it_is_not_accepted(
    fake: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Refusing(fake)
    transport.expire()
    settings: dict[str, Any] = {"bootstrap.servers": fake.bootstrap, "max.block.ms": 5_000}
    began = now_s()
    async with Producer({**settings, "sasl.oauthbearer.token": "old"}, transport=transport) as producer:
        with pytest.raises(SaslAuthenticationFailedError, match="the token expired at 2026"):
            await producer.produce("t", b"v")
    assert now_s() - began < 1
    (tmp_path / "token").write_text("old")
    renewing = {**settings, "sasl.oauthbearer.token.location": str(tmp_path / "token")}
    async with Producer(renewing, transport=transport) as producer:
        with pytest.raises(SaslAuthenticationFailedError, match="the token expired at 2026"):
            await producer.produce("t", b"v")
    assert now_s() - began >= 5
    assert any("does not accept this client" in message for message in caplog.messages)
    assert not any("no cluster answers" in message for message in caplog.messages)
