"""The durable record of one transactional id, and every change that it may take (CM-44, CM-151 … CM-156).

All functions here are pure. From the current record (None when there is none) they compute the next one; they return
the same object when nothing is to be written. The host writes it by compare-and-set, so each decision is made on the
record that it replaces. Times are the store's clock, in ms.

A record is EMPTY, ONGOING, or *decided* (PREPARE_COMMIT, PREPARE_ABORT): then markers are being written, and only
`finished` changes it. Each transaction has its own epoch: its end begins the next epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from kip932.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
)
from kip932.ids import TopicIdPartition

#: The last epoch of a producer id; after it comes a new id. It is Kafka's: its messages have 16 bits for an epoch.
EPOCH_MAX: Final = 2**15 - 2
#: How many ended transactions a record keeps, to answer repeated requests.
ENDED_KEPT: Final = 10
#: A transaction has at most as many partitions as a cluster (CM-89).
PARTITIONS_MAX: Final = 20_000


class State(IntEnum):
    """A record's state; numbers as stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3


class Cause(IntEnum):
    """Who or what ended a transaction; numbers as stored."""

    PRODUCER = 0
    TIMEOUT = 1
    SUCCESSOR = 2
    """Another producer started with this transactional id."""
    RENEWAL = 3
    """The same producer asked for a new epoch."""
    OPERATOR = 4
    """An operator aborted the transaction, which its producer had left open (CM-158)."""


#: A producer whose transaction ended for one of these causes is fenced.
_FENCING: Final = frozenset({Cause.SUCCESSOR, Cause.OPERATOR})


class Identity(NamedTuple):
    """A producer id with an epoch. It identifies one transaction, which may not have begun yet."""

    producer_id: int
    epoch: int


class Ended(NamedTuple):
    """How an epoch ended. An epoch without records counts as aborted, unless its producer committed it."""

    identity: Identity
    committed: bool
    cause: Cause


class Transaction(NamedTuple):
    """A record. `partitions`: those that may hold batches of the transaction; each of them gets a marker. `restored`:
    the record comes from a backup, so later epochs may have been used, and a new producer id follows (CM-146)."""

    identity: Identity
    timeout_ms: int
    state: State = State.EMPTY
    cause: Cause = Cause.PRODUCER
    started_ms: int = 0
    partitions: tuple[TopicIdPartition, ...] = ()
    ended: tuple[Ended, ...] = ()
    restored: bool = False

    @property
    def decided(self) -> bool:
        """Return whether the transaction is decided: its markers are to be written."""
        return self.state in _DECIDED

    @property
    def commits(self) -> bool:
        """Return whether the decision is to commit."""
        return self.state is State.PREPARE_COMMIT

    def outcome_of(self, identity: Identity) -> Ended | None:
        """How a former epoch ended; None when it is no longer recorded, or has not ended."""
        return next((one for one in self.ended if one.identity == identity), None)


_DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})


class Fate(IntEnum):
    """The fate of a transaction that is open in a leader's log."""

    WAITS = 0
    COMMITTED = 1
    ABORTED = 2


# ---- decisions


def initialised(known: Transaction | None, asked: Identity | None, timeout_ms: int, fresh_id: int) -> Transaction:
    """Start a new producer instance for the transactional id, or continue an existing one (CM-152).

    `asked`: the identity given by an instance that wants to continue; None for a new instance, which fences all others.
    If the result is EMPTY, its identity is the one to give the producer. If it is decided, write its markers, then call
    this again. Repeating the call for an instance that continues changes nothing. Raises ProducerFencedError,
    InvalidProducerIdMappingError.
    """
    if known is None:
        if asked is not None:
            raise _unknown(asked)
        return Transaction(Identity(fresh_id, 0), timeout_ms)
    if asked is not None and not _is_present(known, asked):
        raise _fenced(known, asked)
    if known.decided:
        return known
    cause = Cause.SUCCESSOR if asked is None else Cause.RENEWAL
    if known.state is State.ONGOING:
        return decision(known, cause, commit=False)
    # The stored epoch is newer than the one sent, perhaps because this request is a retry.
    if asked is not None and asked != known.identity:
        return known if known.timeout_ms == timeout_ms else known._replace(timeout_ms=timeout_ms)
    return _next_epoch(known, cause, fresh_id, commit=False)._replace(timeout_ms=timeout_ms)


def joined(
    known: Transaction | None, identity: Identity, partitions: Collection[TopicIdPartition], now_ms: int
) -> Transaction:
    """Add the partitions to which batches of the transaction are about to be appended (CM-153).

    Raises InvalidProducerIdMappingError, InvalidProducerEpochError for an epoch that has ended, ProducerFencedError,
    InvalidTxnStateError when the transaction is decided, timed out or has too many partitions.
    """
    _check_present(known, identity)
    assert known is not None
    if known.decided:
        raise InvalidTxnStateError(
            f"the transaction of {_text(identity)} is being {_word(known.commits)}: it takes no more records"
        )
    if known.state is State.EMPTY:
        known = known._replace(state=State.ONGOING, started_ms=now_ms)
    elif timed_out(known, now_ms):
        raise InvalidTxnStateError(
            f"the transaction of {_text(identity)} is open for longer than its time-out of {known.timeout_ms} ms: it "
            "takes no more records and is aborted; begin a new one"
        )
    held = set(known.partitions)
    more = tuple(sorted(one for one in set(partitions) if one not in held))
    if len(held) + len(more) > PARTITIONS_MAX:
        raise InvalidTxnStateError(
            f"the transaction of {_text(identity)} would have {len(held) + len(more)} partitions; expected at most "
            f"{PARTITIONS_MAX}: commit it, and go on in another"
        )
    return known._replace(partitions=(*known.partitions, *more)) if more else known


def ended(
    known: Transaction | None,
    identity: Identity,
    partitions: Iterable[TopicIdPartition],
    *,
    commit: bool,
    cause: Cause = Cause.PRODUCER,
    fresh_id: int = 0,
) -> Transaction:
    """End the transaction for its producer or an operator (CM-154). `partitions`: those whose leaders confirmed records
    to the caller. A commit needs all of them in the record: if one is missing, the store lost data, and committing the
    rest would commit only a part of the transaction.

    Repeating the call changes nothing. Raises InvalidTxnStateError when the transaction ended the other way,
    ProducerFencedError when an operator aborted it, and the errors of `joined`. An operator can only abort an open
    transaction (CM-158).
    """
    past = None if known is None else known.outcome_of(identity)
    if known is not None and past is not None:
        if past.committed is not commit:
            raise _ended_otherwise(known, past, commit)
        _check_by_operator(past, cause)
        return known
    _check_present(known, identity)
    assert known is not None
    if known.decided:
        past = Ended(identity, known.commits, known.cause)
        if known.commits is not commit:
            raise _ended_otherwise(known, past, commit)
        _check_by_operator(past, cause)
        return known
    missing = set(partitions) - set(known.partitions) if commit else set()
    if missing:
        raise InvalidTxnStateError(
            f"the transaction of {_text(identity)} has no record of {len(missing)} of its partitions, such as "
            f"{min(missing).text}: the store may have lost it. Nothing was decided; abort, and send its records again"
        )
    if known.state is State.EMPTY and cause is Cause.OPERATOR:
        raise InvalidTxnStateError(f"{_text(identity)} has no open transaction: there is nothing to abort")
    if known.state is State.EMPTY:
        return _next_epoch(known, cause, fresh_id, commit=commit)
    return decision(known, cause, commit=commit)


def decision(known: Transaction, cause: Cause, *, commit: bool) -> Transaction:
    """Decide an open transaction: from here on only its markers remain to be written."""
    assert known.state is State.ONGOING
    return known._replace(state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, cause=cause)


def timed_out(known: Transaction, now_ms: int) -> bool:
    """Return whether the record has an open transaction that is past its time-out (CM-156)."""
    return known.state is State.ONGOING and now_ms >= known.started_ms + known.timeout_ms


def expired(known: Transaction | None, now_ms: int) -> Transaction | None:
    """Abort the transaction if it is past its time-out (CM-156)."""
    if known is not None and timed_out(known, now_ms):
        return decision(known, Cause.TIMEOUT, commit=False)
    return known


def finished(known: Transaction | None, identity: Identity, fresh_id: int) -> Transaction | None:
    """End a decided transaction, once every partition has its marker. Repeating the call changes nothing."""
    if known is None or not known.decided or known.identity != identity:
        return known
    return _next_epoch(known, known.cause, fresh_id, commit=known.commits)


def following(known: Transaction | None, identity: Identity) -> Identity | None:
    """The identity for the same producer's next transaction; None when markers are still to be written, or another
    producer has started."""
    newest = known.ended[-1] if known is not None and known.ended else None
    if known is None or newest is None or known.state is not State.EMPTY:
        return None
    goes_on = newest.identity == identity and newest.cause not in _FENCING
    return known.identity if goes_on else None


def fate(known: Transaction | None, identity: Identity) -> Fate:
    """The fate of a transaction that is open in a log (CM-155). Read the record after it was seen open there.

    A transaction that is in no record is aborted: a commit is recorded before its first marker is written, and stays
    recorded until every partition has its marker.
    """
    if known is None:
        return Fate.ABORTED
    if known.identity == identity and known.state is not State.EMPTY:
        if not known.decided:
            return Fate.WAITS
        return Fate.COMMITTED if known.commits else Fate.ABORTED
    past = known.outcome_of(identity)
    return Fate.COMMITTED if past is not None and past.committed else Fate.ABORTED


# ---- parts


def _is_present(known: Transaction, asked: Identity) -> bool:
    """Return whether this instance is the current one: no other has started since it got its identity."""
    if asked == known.identity:
        return not (known.decided and known.cause in _FENCING)
    return following(known, asked) is not None


def _next_epoch(known: Transaction, cause: Cause, fresh_id: int, *, commit: bool) -> Transaction:
    """End the current epoch; the result has the identity for the next one."""
    producer_id, epoch = known.identity
    goes_on = epoch < EPOCH_MAX and not known.restored
    identity = Identity(producer_id, epoch + 1) if goes_on else Identity(fresh_id, 0)
    past = (*known.ended, Ended(known.identity, commit, cause))[-ENDED_KEPT:]
    return Transaction(identity, known.timeout_ms, ended=past)


def _check_present(known: Transaction | None, identity: Identity) -> None:
    if known is None:
        raise _unknown(identity)
    if known.identity == identity:
        return
    past = known.outcome_of(identity)
    if past is not None and past.cause not in _FENCING:
        raise InvalidProducerEpochError(
            f"the transaction of {_text(identity)} was {_word(past.committed)}{_REASONS[past.cause]}; the present "
            f"epoch is {known.identity.epoch}: begin a new transaction"
        )
    raise _fenced(known, identity)


def _check_by_operator(past: Ended, cause: Cause) -> None:
    """Let an operator repeat an abort, but refuse to abort a transaction that was aborted for another cause: this would
    not fence the producer (CM-158)."""
    if cause is Cause.OPERATOR and past.cause is not Cause.OPERATOR:
        raise InvalidTxnStateError(
            f"the transaction of {_text(past.identity)} was aborted already{_REASONS[past.cause]}: there is nothing to "
            "abort"
        )


def _unknown(identity: Identity) -> KafkaError:
    return InvalidProducerIdMappingError(
        f"no record of this transactional id knows {_text(identity)}: it was not used for "
        "transactional.id.expiration.ms, or the store lost it; begin again with InitProducerId"
    )


def _fenced(known: Transaction, identity: Identity) -> KafkaError:
    past = known.outcome_of(identity)
    cause = known.cause if known.decided and known.identity == identity else None if past is None else past.cause
    if cause is Cause.OPERATOR:
        return ProducerFencedError(
            f"{_text(identity)} is fenced: an operator aborted its transaction. Close this producer; a new one with "
            "the same transactional.id may begin"
        )
    return ProducerFencedError(
        f"{_text(identity)} is fenced, {_text(known.identity)} is in force: another producer began with the same "
        "transactional.id. Let one producer at a time use it, and close this one"
    )


def concurrent(identity: Identity) -> KafkaError:
    """The error to return while markers of the previous transaction are still to be written."""
    return ConcurrentTransactionsError(
        f"the transaction of {_text(identity)} is decided, but not all of its partitions have their markers; try again"
    )


def _ended_otherwise(known: Transaction, past: Ended, commit: bool) -> KafkaError:
    if past.cause is Cause.OPERATOR and commit:
        return _fenced(known, past.identity)
    return InvalidTxnStateError(
        f"the transaction of {_text(past.identity)} was {_word(past.committed)}{_REASONS[past.cause]}; it cannot be "
        f"{_word(commit)} any more"
    )


_REASONS: Final = {
    Cause.PRODUCER: "",
    Cause.TIMEOUT: " since it was open for longer than its transaction.timeout.ms",
    Cause.SUCCESSOR: " since another producer began with the same transactional.id",
    Cause.RENEWAL: " since its producer asked for a new epoch",
    Cause.OPERATOR: " by an operator",
}


def _word(commit: bool) -> str:
    return "committed" if commit else "aborted"


def _text(identity: Identity) -> str:
    return f"producer {identity.producer_id}, epoch {identity.epoch}"
