"""A producer's transactions (CM-44, CL-100 … CL-104): fences older producers with the same id, then commits or aborts.

The cluster decides: any node accepts EndTxn, stores the decision, and makes the leaders write a marker to every
partition. A request without a response is sent again until a node answers, since repeating it changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kip932.api.v1.end_txn_pb2 import EndTxnRequest, EndTxnResponse
from kip932.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    KafkaError,
    NetworkError,
    ProducerFencedError,
    RequestTimedOutError,
    RetriableError,
    SaslAuthenticationFailedError,
    TransactionalIdAuthorizationFailedError,
    error_for,
)
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.config import Config
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.core.stall_diagnosis import REPEAT_S, UNAUTHENTICATED, UNREACHABLE, Trouble
from sharegroups.errors import IllegalStateError
from sharegroups.producing.core.open_transaction import Transaction
from sharegroups.producing.core.produce_lane import ProducerIdentity
from sharegroups.producing.sender import Sender

log = logging.getLogger(__name__)

#: How long an abort waits for records in flight, in seconds. Records that reach a leader later are refused because of
#: their epoch.
_ABORT_WAIT_S: Final = 5.0
#: If no node answers, that is logged after this long, in seconds. Replacing a node takes less time.
_WARN_AFTER_S: Final = 3.0
#: Errors of an EndTxn after which its outcome is unknown: an attempt before them may have been served.
_DOUBTFUL: Final = (
    RequestTimedOutError,
    NetworkError,
    SaslAuthenticationFailedError,
    TransactionalIdAuthorizationFailedError,
)


class _Doubt(NamedTuple):
    """The end of a transaction, requested but not confirmed yet."""

    identity: ProducerIdentity
    partitions: frozenset[TopicIdPartition]
    commit: bool


class Transactions:
    """The transactions of one producer, one at a time. `flush`: waits until the buffer is empty, or for the given
    number of seconds."""

    def __init__(
        self, cluster: Cluster, config: Config, sender: Sender, flush: Callable[[float | None], Awaitable[int]]
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._sender = sender
        self._flush = flush
        self._open = self._beginning = False
        self._former: ProducerIdentity | None = None
        self._doubt: _Doubt | None = None
        self._fenced: KafkaError | None = None
        if config["transactional.id"]:
            sender.transaction = Transaction(config["transactional.id"], config["transaction.timeout.ms"])

    def check_open(self) -> None:
        """Raise IllegalStateError if a producer with a transactional id sends a record outside a transaction."""
        if self._sender.transaction is not None and not self._open:
            raise IllegalStateError(
                "this producer has a transactional.id, but no transaction is open; produce inside "
                "`with producer.transaction():`, or leave transactional.id out"
            )

    async def begin(self) -> None:
        """Begin a transaction once the previous one has ended. Raises IllegalStateError without transactional.id or
        inside another transaction, ProducerFencedError once another producer uses the id, RequestTimedOutError."""
        if self._sender.transaction is None:
            raise IllegalStateError("a transaction needs the setting transactional.id")
        if self._open or self._beginning:  # two would each request an identity, and one would fence the other
            raise IllegalStateError("a transaction is open already; end it first")
        if self._fenced is not None:
            raise type(self._fenced)(self._fenced.message)
        self._beginning = True
        try:
            self._cluster.start()
            if self._doubt is not None:
                await self._resolve(self._doubt)
            if self._sender.identity is None:
                await self._identify()
        finally:
            self._beginning = False
        self._sender.open.begin()
        self._open = True

    async def end(self, commit: bool) -> None:
        """Deliver the records, then commit or abort; without `commit`, undelivered records are given up.

        If a record could not be delivered, the transaction is aborted even with `commit`, and its error is raised.
        After RequestTimedOutError, NetworkError, SaslAuthenticationFailedError or
        TransactionalIdAuthorizationFailedError the outcome is unknown, and the next `begin` finds it out. After any
        other KafkaError from a commit, no record of the transaction is delivered.
        """
        if not self._open:
            raise IllegalStateError("no transaction is open; begin one with `producer.transaction()`")
        try:
            await self._empty(commit)
        except BaseException:
            self._cut_short()
            raise
        finally:
            self._open = False
        failed = self._sender.open.error
        decides = commit and failed is None
        identity = self._sender.identity
        if identity is not None and self._sender.open.sent_any:
            partitions = frozenset(self._sender.open.confirmed) if decides else frozenset[TopicIdPartition]()
            await self._end(_Doubt(identity, partitions, decides))
        if failed is not None and commit:
            raise failed

    def not_begun(self) -> None:
        """Undo a `begin` that succeeded although its caller was interrupted."""
        self._open = False

    async def abort(self) -> None:
        """Abort an open transaction, or one whose abort is not confirmed yet, because an exception propagates or the
        producer is being closed. A failure is only logged."""
        try:
            if self._open:
                await self.end(commit=False)
            elif self._doubt is not None and not self._doubt.commit:
                await self._end(self._doubt)
        except KafkaError as error:
            log.warning(
                "transactional id %r: the transaction was not aborted by this producer; at its time-out it is: %s",
                self._config["transactional.id"],
                error,
            )

    # ---- steps

    async def _empty(self, commit: bool) -> None:
        if commit:
            await self._flush(None)
            return
        self._sender.abandon(InvalidTxnStateError("the transaction was aborted before the record was sent"))
        await self._flush(_ABORT_WAIT_S)

    def _cut_short(self) -> None:
        """Handle the cancellation of the wait for the records, before anything is decided. Its records must not be
        committed with the next transaction: they are given up, and this transaction is aborted before another
        begins."""
        self._sender.abandon(InvalidTxnStateError("the end of the transaction was cancelled; it is aborted"))
        identity = self._sender.identity
        if identity is not None and self._sender.open.sent_any:
            self._sender.identity, self._former = None, identity
            self._doubt = _Doubt(identity, frozenset(), commit=False)

    async def _identify(self) -> None:
        """Get an identity: the first time as a new instance, later as one that continues the previous identity."""

        async def ask() -> None:
            try:
                await self._sender.identify(self._former)
            except InvalidProducerIdMappingError:
                if self._former is None:
                    raise
                self._former = None  # the id's state has expired, so no other producer has used the id either
                await self._sender.identify(None)

        try:
            await self._repeat(ask, "no producer id was given to it")
        except ProducerFencedError as error:
            self._fenced = error
            raise
        self._former = None

    async def _end(self, asked: _Doubt) -> None:
        """Request the end of the transaction. In any case, the next transaction begins with another identity."""
        self._sender.identity, self._former = None, asked.identity
        self._doubt = asked
        word = "commit" if asked.commit else "abort"
        try:
            await self._repeat(lambda: self._ask_end(asked), f"the outcome is not known ({word} was asked for)")
        except _DOUBTFUL:
            raise
        except ProducerFencedError as error:
            self._doubt, self._fenced = None, error
            raise
        except KafkaError:
            self._doubt = None
            raise
        self._doubt = None

    async def _resolve(self, doubt: _Doubt) -> None:
        """Request the end again, so that the unknown outcome is known before another transaction begins."""
        word = "committed" if doubt.commit else "aborted"
        try:
            await self._end(doubt)
        except (InvalidTxnStateError, InvalidProducerEpochError) as error:
            log.warning("the transaction in doubt was not %s: %s", word, error.message)
        else:
            log.warning("the transaction in doubt was %s", word)

    async def _ask_end(self, asked: _Doubt) -> None:
        response = await self._cluster.ask_any(wire.END_TXN, self._request(asked))
        if error := error_for(response.error_code, response.error_message):
            raise error
        self._next(response)

    def _next(self, response: EndTxnResponse) -> None:
        if response.producer_id > 0:
            self._sender.adopt(ProducerIdentity(response.producer_id, response.producer_epoch))
            self._former = None

    async def _repeat(self, ask: Callable[[], Awaitable[None]], what: str) -> None:
        """Call `ask` until it succeeds or fails with an error that is not retriable. Raises RequestTimedOutError after
        default.api.timeout.ms. A refusal of credentials is retried where they can change (CL-158).

        If no node has answered for a few seconds, or all refuse, log a warning that says so, and what to try.
        """
        name, loop = self._config["transactional.id"], asyncio.get_running_loop()
        backoff = self._cluster.backoff()
        warn_at_s = loop.time() + _WARN_AFTER_S
        last: KafkaError = NetworkError("no node answered")
        timeout_ms = self._config["default.api.timeout.ms"]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await ask()
                    except TransportError as error:
                        last = _meaning(error)
                        if not error.retriable and not self._sender.may_renew(error):
                            raise last from error
                    except RetriableError as error:
                        last = error
                    if (trouble := self._trouble(last)) and loop.time() >= warn_at_s:
                        warn_at_s = loop.time() + REPEAT_S
                        wait = f"it waits for default.api.timeout.ms ({timeout_ms} ms)"
                        log.warning("transactional id %r: %s; %s", name, trouble, wait)
                    await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError:
            problem = self._trouble(last) or str(last)
            raise RequestTimedOutError(
                f"transactional id {name!r}: {what} within {timeout_ms} ms; the last problem was: {problem}"
            ) from None

    def _trouble(self, error: KafkaError) -> str:
        """Return in words that no node can be reached, or that they refuse this client; "" for other errors."""
        if not isinstance(error, NetworkError | SaslAuthenticationFailedError):
            return ""
        kind = UNREACHABLE if isinstance(error, NetworkError) else UNAUTHENTICATED
        where: str = self._config["bootstrap.servers"]
        return Trouble(kind, where, detail=error.message).text().rstrip(".")

    def _request(self, asked: _Doubt) -> EndTxnRequest:
        request = EndTxnRequest(
            transactional_id=self._config["transactional.id"],
            producer_id=asked.identity.producer_id,
            producer_epoch=asked.identity.epoch,
            committed=asked.commit,
        )
        for topic_id, numbers in wire.by_topic(sorted(asked.partitions)).items():
            request.topics.add(topic_id=topic_id, partition_indexes=numbers)
        return request


def _meaning(error: TransportError) -> KafkaError:
    refused = error.status is TransportStatus.UNAUTHENTICATED
    return SaslAuthenticationFailedError(error.refusal) if refused else NetworkError(str(error))


def no_offsets() -> InvalidRequestError:
    """Return the error for an attempt to commit offsets in a transaction (CL-104)."""
    return InvalidRequestError(
        "share groups have no offsets, so none can be part of a transaction; acknowledge the records that were worked "
        "off after the transaction is committed: one may then be delivered again, none is lost"
    )
