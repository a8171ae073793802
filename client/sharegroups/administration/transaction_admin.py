"""Administration of transactions (CL-105): list, describe, abort. Any node can answer for all transactions (CM-157)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsRequest, DescribeTransactionsResponse
from kip932.api.v1.end_txn_pb2 import EndTxnRequest
from kip932.api.v1.list_transactions_pb2 import ListTransactionsRequest, ListTransactionsResponse
from kip932.errors import InvalidRequestError, KafkaError, KafkaStorageError, NetworkError, error_for
from kip932.ids import TopicPartition
from sharegroups import arguments
from sharegroups.admin_values import TransactionDescription, TransactionListing
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import until_answered

#: How many transactions one call describes at a time.
_AT_ONCE: Final = 16
#: The maximum number of attempts to list all pages; an attempt fails if the store's nodes change meanwhile.
_ATTEMPTS: Final = 5
#: The states that list_transactions accepts (CM-157).
STATES: Final = "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Unreadable"


class TransactionAdmin:
    """The transaction part of the admin client."""

    _cluster: Cluster
    _timeout_s: float

    async def list_transactions(
        self,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return recently used transactional ids, sorted; optionally only those in these states, of these producers,
        and with a transaction open for longer than this.

        States: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Unreadable (CM-157). Raises
        KafkaError: InvalidRequestError for an unknown state, RequestTimedOutError.
        """
        call = "list_transactions"
        request = ListTransactionsRequest()
        request.state_filters.extend(arguments.items(call, states or (), "states", str, f'{call}(["Ongoing"])'))
        wanted = arguments.items(call, producer_ids or (), "producer ids", int, f"{call}(producer_ids=[4711])")
        request.producer_id_filters.extend(arguments.whole(call, "a producer id", each, 64) for each in wanted)
        if open_longer_than_ms is not None:
            request.duration_filter = arguments.whole(call, "open_longer_than_ms", open_longer_than_ms, 64)
        for left in reversed(range(_ATTEMPTS)):
            try:
                return await self._all_pages(request)
            except InvalidRequestError:  # on a later page: the store's nodes have changed
                if not request.cursor or not left:
                    raise
        raise AssertionError("the last beginning ends in an answer or an error")

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Return the record of each transactional id, or its error: TransactionalIdNotFoundError when there is no
        record."""
        call = "describe_transactions"
        names = arguments.items(call, transactional_ids, "transactional ids", str, f'{call}(["orders-7"])')
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> TransactionDescription | KafkaError:
            try:
                async with places:
                    return await self._described(name)
            except KafkaError as error:
                return error

        wanted = list(dict.fromkeys(names))
        return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))

    async def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort a transaction that a producer left open. The producer is fenced; a new one may start with the same id
        (CM-158). Returns the transaction as it was before the abort. A transaction that begins while this runs is not
        affected.

        Raises KafkaError: TransactionalIdNotFoundError, InvalidTxnStateError when no transaction is open or it was
        committed, RequestTimedOutError, after which the transaction may or may not have been aborted.
        """
        arguments.text("abort_transaction", "transactional_id", transactional_id)
        known = await self._described(transactional_id)
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            by_operator=True,
        )

        async def call() -> None:
            answer = await self._cluster.ask_any(wire.END_TXN, request, min(self._timeout_s, self._cluster.timeout_s))
            if error := error_for(answer.error_code, answer.error_message):
                raise error

        await until_answered(self._cluster, "EndTxn", self._timeout_s, call)
        return known

    async def _all_pages(self, request: ListTransactionsRequest) -> list[TransactionListing]:
        found: dict[str, TransactionListing] = {}
        request.cursor = ""
        while True:
            page = await self._page(request)
            found |= {each.transactional_id: _listing(each, page.coordinator_id) for each in page.transaction_states}
            if not page.next_cursor:
                return [found[name] for name in sorted(found)]
            request.cursor = page.next_cursor

    async def _page(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        async def call() -> ListTransactionsResponse:
            one_s = min(self._timeout_s, self._cluster.timeout_s)
            page = await self._cluster.ask_any(wire.LIST_TRANSACTIONS, request, one_s)
            if error := error_for(page.error_code, page.error_message):
                raise error
            if page.unknown_state_filters:
                names = ", ".join(map(repr, page.unknown_state_filters))
                raise InvalidRequestError(f"no transaction is ever in state {names}; the states are {STATES}")
            return page

        return await until_answered(self._cluster, "ListTransactions", self._timeout_s, call)

    async def _described(self, transactional_id: str) -> TransactionDescription:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def call() -> TransactionDescription | KafkaStorageError:
            one_s = min(self._timeout_s, self._cluster.timeout_s)
            answer = await self._cluster.ask_any(wire.DESCRIBE_TRANSACTIONS, request, one_s)
            if len(answer.transaction_states) != 1:
                raise NetworkError(f"the answer leaves out transactional id {transactional_id!r}")
            (found,) = answer.transaction_states
            error = error_for(found.error_code, found.error_message)
            if isinstance(error, KafkaStorageError):  # a damaged record stays damaged
                return error
            if error is not None:
                raise error
            return _description(found, answer.coordinator_id)

        outcome = await until_answered(self._cluster, "DescribeTransactions", self._timeout_s, call)
        if isinstance(outcome, KafkaStorageError):
            raise outcome
        return outcome


def _listing(found: ListTransactionsResponse.TransactionState, coordinator: int) -> TransactionListing:
    return TransactionListing(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.open_ms if found.open_ms >= 0 else None,
        coordinator,
        KafkaStorageError(found.error_message) if found.HasField("error_message") else None,
    )


def _description(found: DescribeTransactionsResponse.TransactionState, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        found.open_ms if found.open_ms >= 0 else None,
        tuple(TopicPartition(topic.topic, n) for topic in found.topics if topic.topic for n in topic.partitions),
        coordinator,
    )
