"""The RPCs that only read transactions: ListTransactions, DescribeTransactions (CM-157)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from kip932.acls import ResourceType
from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsRequest, DescribeTransactionsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.list_transactions_pb2 import ListTransactionsRequest, ListTransactionsResponse
from kip932.errors import InvalidRequestError, KafkaError, TransactionalIdNotFoundError
from kip932.ids import REQUEST_TRANSACTIONS_MAX, TRANSACTIONAL_ID_MAX
from shard_runtime.rpc.binding import CallContext
from transaction_coordinator.core.listing import NOT_OPEN, STATES, UNREADABLE, Asked, open_ms, state_name
from transaction_coordinator.core.transaction import PARTITIONS_MAX, State, Transaction
from transaction_coordinator.records import Page, ReadRecord

#: The most filters in one ListTransactions request, and the most characters of its cursor.
FILTERS_MAX: Final = 1_000
CURSOR_MAX: Final = 1_000
_NONE: Final = -1


class Surroundings(NamedTuple):
    """The handlers' dependencies. `node_id`: this node's id; `name_of`: a topic's name, "" for a deleted topic."""

    node_id: Callable[[], int]
    name_of: Callable[[bytes], str]


class Records(Protocol):
    """Reads the records of transactional ids. Calls raise KafkaError."""

    async def read(self, transactional_id: str) -> ReadRecord:
        """Read one record."""
        ...

    async def page(self, cursor: str) -> Page:
        """Read one page of records."""
        ...


class TransactionReads:
    """The read-only handlers; any node answers for all transactions."""

    def __init__(self, records: Records, around: Surroundings) -> None:
        self._records = records
        self._around = around

    async def list_transactions(
        self, request: ListTransactionsRequest, context: CallContext
    ) -> ListTransactionsResponse:
        """List one page of transactions. Raises InvalidRequestError, which ends the call as INVALID_ARGUMENT, for too
        many filters or too long a cursor."""
        filters = len(request.state_filters) + len(request.producer_id_filters)
        if filters > FILTERS_MAX:
            raise InvalidRequestError(f"{filters} filters; at most {FILTERS_MAX} go into one request")
        if len(request.cursor) > CURSOR_MAX:
            raise InvalidRequestError(f"the cursor has {len(request.cursor)} characters; at most {CURSOR_MAX} are sent")
        longer_ms = request.duration_filter if request.HasField("duration_filter") else NOT_OPEN
        asked = Asked(frozenset(request.state_filters), frozenset(request.producer_id_filters), longer_ms)
        response = ListTransactionsResponse(coordinator_id=self._around.node_id())
        response.unknown_state_filters.extend(sorted(frozenset(request.state_filters) - STATES))
        try:
            page = await self._records.page(request.cursor)
        except KafkaError as error:
            response.error_code, response.error_message = ErrorCode.ValueType(error.code), error.message
            return response
        response.next_cursor = page.next_cursor
        for transactional_id, known in page.records.items():
            if not context.may(ResourceType.TRANSACTIONAL_ID, transactional_id):
                continue
            if not isinstance(known, Transaction):
                if asked.matches_unreadable():
                    response.transaction_states.add(
                        transactional_id=transactional_id,
                        producer_id=_NONE,
                        producer_epoch=_NONE,
                        transaction_state=UNREADABLE,
                        open_ms=NOT_OPEN,
                        error_message=known.message,
                    )
            elif asked.passes(known, page.now_ms):
                response.transaction_states.add(
                    transactional_id=transactional_id,
                    producer_id=known.identity.producer_id,
                    producer_epoch=known.identity.epoch,
                    transaction_state=state_name(known),
                    open_ms=open_ms(known, page.now_ms),
                )
        return response

    async def describe_transactions(
        self, request: DescribeTransactionsRequest, context: CallContext
    ) -> DescribeTransactionsResponse:
        """Describe each transaction; no fail-over can undo what is shown. Raises InvalidRequestError for too many
        ids."""
        if len(request.transactional_ids) > REQUEST_TRANSACTIONS_MAX:
            raise InvalidRequestError(
                f"{len(request.transactional_ids)} transactional ids; at most {REQUEST_TRANSACTIONS_MAX} go into one "
                "request"
            )
        response, partitions = DescribeTransactionsResponse(coordinator_id=self._around.node_id()), 0
        for transactional_id in request.transactional_ids:
            try:
                context.require(ResourceType.TRANSACTIONAL_ID, transactional_id)
                found = await self._records.read(checked_id(transactional_id))
                known = found.transaction
                if known is None:
                    raise _not_found(transactional_id)
                partitions += len(known.partitions)
                if partitions > PARTITIONS_MAX:
                    raise InvalidRequestError(
                        f"the transactions asked for have more than {PARTITIONS_MAX} partitions together; ask for "
                        f"{transactional_id!r} alone"
                    )
            except KafkaError as error:
                _refuse(response.transaction_states.add(transactional_id=transactional_id[:_SHOWN]), error)
            else:
                response.transaction_states.append(self._described(transactional_id, known, found.now_ms, context))
        return response

    def _described(
        self, transactional_id: str, known: Transaction, now_ms: int, context: CallContext
    ) -> DescribeTransactionsResponse.TransactionState:
        open_now = known.state is not State.EMPTY
        return DescribeTransactionsResponse.TransactionState(
            transactional_id=transactional_id,
            transaction_state=state_name(known),
            transaction_timeout_ms=known.timeout_ms,
            transaction_start_time_ms=known.started_ms if open_now else _NONE,
            producer_id=known.identity.producer_id,
            producer_epoch=known.identity.epoch,
            topics=self._topics(known, context),
            open_ms=open_ms(known, now_ms),
        )

    def _topics(self, known: Transaction, context: CallContext) -> Iterator[DescribeTransactionsResponse.TopicData]:
        """The partitions of topics that the caller may DESCRIBE; those of deleted topics, which have no name, too."""
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(known.partitions):
            by_topic.setdefault(topic_id, []).append(index)
        for topic_id, indexes in by_topic.items():
            name = self._around.name_of(topic_id)
            if not name or context.may(ResourceType.TOPIC, name):
                yield DescribeTransactionsResponse.TopicData(topic_id=topic_id, partitions=indexes, topic=name)


#: How many characters of an invalid id a response repeats.
_SHOWN: Final = TRANSACTIONAL_ID_MAX + 5


def checked_id(transactional_id: str) -> str:
    """Return a valid transactional id. Raises InvalidRequestError."""
    size = len(transactional_id.encode())
    if not 0 < size <= TRANSACTIONAL_ID_MAX:
        raise InvalidRequestError(f"the transactional id has {size} bytes; expected 1 to {TRANSACTIONAL_ID_MAX}")
    return transactional_id


def _not_found(transactional_id: str) -> KafkaError:
    return TransactionalIdNotFoundError(
        f"there is no record of transactional id {transactional_id!r}: no producer has used it, or not for "
        "transactional.id.expiration.ms"
    )


def _refuse(state: DescribeTransactionsResponse.TransactionState, error: KafkaError) -> None:
    state.error_code, state.error_message = ErrorCode.ValueType(error.code), error.message
    state.producer_id, state.producer_epoch = _NONE, _NONE
    state.transaction_start_time_ms = state.open_ms = _NONE
