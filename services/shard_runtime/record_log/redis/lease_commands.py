"""Translates claims, renewals and releases into the functions' arguments, and their replies back (CM-12).

It evaluates nothing: `store_calls` decides when a reply is *valid* (durable, unchanged history, still this owner's).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip932.entry_checksum import unplaced
from shard_runtime.record_log.protocol import (
    CLAIM_TYPE,
    STREAM_START,
    Claimed,
    ClaimRefused,
    ClaimRequest,
    HistoryChanged,
    OwnedElsewhere,
    OwnerRecord,
    Renewal,
    ShardId,
    StreamId,
    WaitHistory,
)
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.connection import Command, Reply

_RECORD_FIELDS: Final = 9  # a function returns eleven; the last two (nonce, verdict) are not part of the record


def claim_command(request: ClaimRequest, record: bytes) -> Command:
    """`claim_v2` for a request; `record` is the claim entry's field `r`."""
    streams = request.shard.streams
    return (
        "EVALSHA",
        scripts.CLAIM.digest,
        1 + len(streams),
        request.shard.owner_key,
        *streams,
        str(request.incarnation),
        request.node_id,
        request.address,
        request.nonce,
        request.lease_ms,
        request.floor,
        request.seen_history,
        int(request.waited),
        int(request.lossless),
        int(request.durable),
        request.cont_epoch,
        record,
        ",".join(request.whole),
        ",".join(str(unplaced(stream, CLAIM_TYPE, record)) for stream in streams),
        *(str(incarnation) for incarnation in sorted(request.dead)),
    )


def claim_answer(reply: Reply, sent_ms: int) -> Claimed | OwnedElsewhere | HistoryChanged | WaitHistory | ClaimRefused:
    """Parse the reply of `claim_v2`. A Claimed is not valid yet: `store_calls` checks that it is durable."""
    status, history = reply[0], reply[1].decode()
    if status == b"OK":
        previous = owner_record(reply[6:]) if len(reply) > 6 else None
        return Claimed(int(reply[3]), reply[4] == b"1", stream_id(reply[5]), previous, history, sent_ms)
    if status == b"HELD":
        return OwnedElsewhere(owner_record(reply[4:]), int(reply[3]))
    if status == b"CHANGED":
        return HistoryChanged(history)
    if status == b"WAIT_HISTORY":
        return WaitHistory(history)
    return ClaimRefused(reply[3].decode())


def owner_record(fields: Sequence[bytes]) -> OwnerRecord:
    """An owner record from its fields, in the order in which the functions return them; absent fields are empty."""
    node_id, incarnation, address, epoch, expires, released, lease, tail, replay_from = fields[:_RECORD_FIELDS]
    return OwnerRecord(
        node_id=int(node_id or 0),
        incarnation=int(incarnation or 0),
        address=address.decode(),
        epoch=int(epoch or 0),
        expires_ms=int(expires or 0),
        released=released == b"1",
        lease_history=lease.decode(),
        tail_history=tail.decode(),
        replay_from=stream_id(replay_from) if replay_from else STREAM_START,
    )


def renew_command(renewals: Sequence[Renewal]) -> Command:
    """`renew_v1` for leases that are all on one node (in cluster mode: all under one hash tag)."""
    args: list[str | int] = []
    for renewal in renewals:
        args += (str(renewal.incarnation), renewal.epoch, renewal.lease_ms, renewal.tail_ok)
    return ("EVALSHA", scripts.RENEW.digest, len(renewals), *(r.shard.owner_key for r in renewals), *args)


def release_command(shard: ShardId, incarnation: int, epoch: int) -> Command:
    """`release_v1`."""
    return ("EVALSHA", scripts.RELEASE.digest, 1, shard.owner_key, str(incarnation), epoch)


def replay_from_command(shard: ShardId, incarnation: int, epoch: int, before: StreamId | None) -> Command:
    """`replay_from_v1`; with `before` None it only checks the owner."""
    text = "" if before is None else str(before)
    return ("EVALSHA", scripts.REPLAY_FROM.digest, 1, shard.owner_key, str(incarnation), epoch, text)


def owner_query(shard: ShardId) -> Command:
    """The query for a shard's owner; `is_owner` evaluates its reply."""
    return ("HMGET", shard.owner_key, "incarnation", "epoch", "released", "nonce")


def is_owner(reply: Reply, incarnation: int, epoch: int, nonce: str | None = None) -> bool:
    """Return whether an `owner_query` reply names this owner, not released; with a nonce, also whether the claim is the
    one with that nonce."""
    if not isinstance(reply, list) or len(reply) != 4:
        return False
    mine = reply[0] == str(incarnation).encode() and reply[1] == str(epoch).encode() and reply[2] == b"0"
    return mine and (nonce is None or reply[3] == nonce.encode())
