"""Describes events, one line each, as the story of a run prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kip932 import ids
from tests.simulation import connection_events, coordinator_events, delay_events, leader_events
from tests.simulation import history as h

_TYPES: Final = {
    ids.ACK_GAP: "gap",
    ids.ACK_ACCEPT: "accept",
    ids.ACK_RELEASE: "release",
    ids.ACK_REJECT: "reject",
    ids.ACK_RENEW: "renew",
}
_STATES: Final = {
    ids.STATE_AVAILABLE: "available",
    ids.STATE_ACQUIRED: "acquired",
    ids.STATE_ACKNOWLEDGED: "acknowledged",
    ids.STATE_ARCHIVING: "archiving",
    ids.STATE_ARCHIVED: "archived",
}
_SHOWN_MAX: Final = 6


@dataclass(frozen=True)
class Words:
    """Formats events, with topics by name if `topics` (names by hexadecimal id) has it, else by six digits of the
    id."""

    topics: Mapping[str, str] = field(default_factory=dict)

    def of(self, event: h.Event) -> str:
        """Return the event in one line, starting with its time in seconds."""
        said = _SAYINGS.get(type(event))
        words = said(self, event) if said is not None else f"{type(event).__name__} {h.line(event)}"
        return f"{event.at_ms / 1000:9.3f}  {event.process:<12}  {words}"

    def place(self, place: h.Place) -> str:
        """Return a place as `jobs/0@17`."""
        return f"{self.partition(place.topic_id, place.partition)}@{place.offset}"

    def share(self, share: h.Share) -> str:
        """Return a share-partition as `g:jobs/0`."""
        return f"{share.group_id}:{self.partition(share.topic_id, share.partition)}"

    def partition(self, topic_id: str, partition: int) -> str:
        """Return a partition as `jobs/0`."""
        return f"{self.topics.get(topic_id, topic_id[:6])}/{partition}"

    def assignment(self, partitions: Iterable[tuple[str, int]]) -> str:
        """Return assigned partitions, side by side."""
        return ", ".join(self.partition(*each) for each in partitions) or "nothing"


def _type(number: int) -> str:
    return _TYPES.get(number, f"type {number}")


def _code(code: int) -> str:
    return "" if code == 0 else f", error {code}"


def _error(error: str) -> str:
    return error or "NONE"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _few(items: Iterable[str]) -> str:
    found = list(items)
    more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
    return (", ".join(found[:_SHOWN_MAX]) or "nothing") + more


def _acks(batches: Iterable[h.AckBatchSeen]) -> str:
    return _few(f"{_span(first, last)} {'+'.join(dict.fromkeys(map(_type, types)))}" for first, last, types in batches)


def _reasons(failures: Iterable[h.FailureSeen]) -> str:
    return _few(f"{_span(first, last)} x{count} {reason[:20]!r}" for first, last, count, reason in failures)


def _state(start_offset: int, batches: Iterable[h.StateBatchSeen], failures: Iterable[h.FailureSeen] = ()) -> str:
    pieces = _few(
        f"{_span(a, b)} {_STATES.get(state, state)} x{count}" + "".join(f" not before {ms}" for ms in rest if ms)
        for a, b, state, count, *rest in batches
    )
    return f"start {start_offset}, {pieces}" + (f"; reasons {_reasons(failures)}" if failures else "")


def _backoff(backoff: delay_events.BackoffSeen) -> str:
    initial_ms, multiplier, max_ms, jitter = backoff
    return f"back-off {initial_ms} ms x {multiplier} to {max_ms} ms, jitter {jitter}" if initial_ms else "no back-off"


def _releases(batches: Iterable[delay_events.ReleaseSeen]) -> str:
    return _few(
        f"{_acks([(first, last, types)])} by {'+'.join(map(str, dict.fromkeys(delays)))} ms"
        if delays
        else _acks([(first, last, types)])
        for first, last, types, delays in batches
    )


def _fullest(sizes: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return sorted(sizes, key=lambda each: each[2] - each[1])


def _target(words: Words, event: Any) -> str:
    return "; ".join(f"{member[:8]}: {words.assignment(parts)}" for member, parts in event.target) or "no member"


_SAYINGS: Final[dict[type[h.Event], Callable[[Words, Any], str]]] = {
    h.ProduceSent: lambda w, e: f"produces {e.value!r} to {e.topic}",
    h.Produced: lambda w, e: f"learns that {e.value!r} is at {w.place(e.place)}",
    h.ProduceFailed: lambda w, e: f"gives up {e.value!r}: {e.error}",
    h.Delivered: lambda w, e: (
        f"is given {w.place(e.place)} {e.value!r} in {e.group_id} as member {e.member_id[:8]}, delivery "
        f"{e.delivery_count}"
    ),
    h.Settled: lambda w, e: (
        f"learns of {_type(e.type)} of {w.place(e.place)} in {e.group_id} as member {e.member_id[:8]}: "
        f"{_error(e.error)}"
    ),
    h.ClientFailed: lambda w, e: f"{e.call} fails: {e.error}",
    h.LagSeen: lambda w, e: f"sees {w.share(e.share)} start at {e.start_offset}, lag {e.lag}",
    h.Administered: lambda w, e: f"{e.call} {e.target} {e.detail}: {_error(e.error)}",
    h.GroupListed: lambda w, e: f"sees by {e.call} that {e.group_id} {'exists' if e.there else 'does not exist'}",
    h.SessionAsked: lambda w, e: (
        f"#{e.incarnation} hears {e.call} {e.request} of {e.member_id[:8]} ({e.group_id}) on {e.connection}, "
        f"epoch {e.session_epoch}: " + _few(f"{w.partition(t, p)} {_acks([batch])}" for t, p, batch in e.acks)
    ),
    h.SessionAnswered: lambda w, e: (
        f"#{e.incarnation} answers {e.call} {e.request} of {e.member_id[:8]} ({e.group_id}), asked at "
        f"{e.asked_ms / 1000:.3f}, epoch {e.session_epoch}{_code(e.code)}"
    ),
    h.AckAnswered: lambda w, e: (
        f"#{e.incarnation} answers {e.request}, asked at {e.asked_ms / 1000:.3f}: {w.share(e.share)} "
        f"{_acks(e.batches)} of {e.member_id[:8]}{_code(e.code)} (leader epoch {e.leader_epoch}, object {e.object_id})"
    ),
    h.Acquired: lambda w, e: (
        f"#{e.incarnation} gives {w.share(e.share)} {_span(e.first_offset, e.last_offset)} x{e.delivery_count} to "
        f"{e.member_id[:8]} for {e.lock_ms} ms (leader epoch {e.leader_epoch}, object {e.object_id}, "
        f"start {e.start_offset}, log {e.log_start_offset} to {e.high_watermark})"
    ),
    h.SessionEnded: lambda w, e: f"#{e.incarnation} ends the share session of {e.member_id[:8]} ({e.group_id})",
    leader_events.Locked: lambda w, e: (
        f"#{e.incarnation} locks {w.share(e.share)} {_span(e.first_offset, e.last_offset)} x{e.delivery_count} for "
        f"{e.member_id[:8]} in {e.request}, {e.lock_ms} ms (leader epoch {e.leader_epoch}, object {e.object_id}, "
        f"limit {e.limit}, window {e.in_flight_before} -> {e.in_flight} of {e.max_locks}, "
        f"{e.new_offsets} new)"
    ),
    leader_events.AckDone: lambda w, e: (
        f"#{e.incarnation} is done with {e.request}, begun at {e.begun_ms / 1000:.3f}: {w.share(e.share)} "
        f"{_acks(e.batches)} of {e.member_id[:8]}{_code(e.code)}{', persisted' if e.persisted else ''} "
        f"(leader epoch {e.leader_epoch}, object {e.object_id}, start {e.start_offset})"
    ),
    leader_events.ReasonsGiven: lambda w, e: (
        f"#{e.incarnation} hears in {e.request} why for {w.share(e.share)} (object {e.object_id}): "
        + _few(f"{_acks([batch])} {reason[:20]!r}" for batch, _, reason in e.batches)
    ),
    leader_events.ReasonsKept: lambda w, e: (
        f"#{e.incarnation} keeps for {w.share(e.share)} (object {e.object_id}, start {e.window_start}) the reasons "
        f"{_reasons(e.failures)}"
    ),
    leader_events.MemoryWrong: lambda w, e: f"has {w.share(e.share)} wrong: {e.sentence}",
    leader_events.GivenBack: lambda w, e: (
        f"#{e.incarnation} takes back {w.share(e.share)} "
        f"{'all' if e.ranges is None else _few(_span(*each) for each in e.ranges)} from {e.member_id[:8]} "
        f"(object {e.object_id})"
    ),
    leader_events.ObjectMade: lambda w, e: (
        f"#{e.incarnation} makes object {e.object_id} of {w.share(e.share)} (leader epoch {e.leader_epoch}, generation "
        f"{e.generation})"
    ),
    leader_events.ObjectDropped: lambda w, e: (
        f"#{e.incarnation} lets object {e.object_id} of {w.share(e.share)} go: {e.reason}"
    ),
    leader_events.StartResolved: lambda w, e: (
        f"#{e.incarnation} lets {w.share(e.share)} begin at {e.start_offset} (object {e.object_id}, log "
        f"{e.log_start_offset} to {e.high_watermark})"
    ),
    connection_events.ConnectionReached: lambda w, e: f"#{e.incarnation} is reached by {e.client} over {e.connection}",
    connection_events.ConnectionEnded: lambda w, e: f"#{e.incarnation} loses {e.connection} of {e.client}: {e.why}",
    connection_events.MoveAsked: lambda w, e: (
        f"#{e.incarnation} asks {e.client} to move from {e.stream}, a {e.method}, to another connection"
    ),
    connection_events.MoveRefused: lambda w, e: f"#{e.incarnation} refuses {e.client} a share stream on {e.connection}",
    connection_events.ShareStreamMade: lambda w, e: f"#{e.incarnation} begins share stream {e.number} {e.stream}",
    connection_events.ShareStreamLost: lambda w, e: (
        f"#{e.incarnation} loses share stream {e.number}, and with it the sessions of "
        f"{_few(f'{member[:8]} ({group})' for group, member in e.ended)}"
    ),
    connection_events.PrincipalKnown: lambda w, e: f"is {e.principal}, as member {e.member_id[:8]} of {e.group_id}",
    connection_events.RightsSeen: lambda w, e: (
        f"#{e.incarnation} lets {e.principal} read {_few((*e.groups, *e.topics))} from now on"
    ),
    coordinator_events.TargetComputed: lambda w, e: (
        f"#{e.incarnation} computes the target of {e.group_id} at epoch {e.epoch}: {_target(w, e)}"
    ),
    coordinator_events.GroupDecided: lambda w, e: (
        f"#{e.incarnation} {'makes' if e.made else 'deletes'} group {e.group_id} at epoch {e.epoch}"
    ),
    delay_events.ClockSet: lambda w, e: f"has a wall clock {e.ahead_ms} ms ahead",
    delay_events.RetriesSeen: lambda w, e: (
        f"#{e.incarnation} takes for {e.group_id}: {_backoff(e.backoff)}, delays up to {e.delay_max_ms} ms"
    ),
    delay_events.TakeBackAsked: lambda w, e: (
        f"#{e.incarnation} hears that {e.member_id[:8]} was not given {_few(f'{a}-{b}' for a, b in e.ranges)} of "
        f"{w.share(e.share)} (object {e.object_id})"
    ),
    delay_events.ReleaseAsked: lambda w, e: (
        f"#{e.incarnation} hears {e.request} of {e.member_id[:8]} for {w.share(e.share)}: {_releases(e.batches)} "
        f"({_backoff(e.backoff)}, object {e.object_id})"
    ),
    delay_events.StateLoaded: lambda w, e: (
        f"#{e.incarnation} has read {w.share(e.share)} (leader epoch {e.leader_epoch}, generation {e.generation}, "
        f"object {e.object_id}), its clock {e.ahead_ms} ms ahead, delays up to {e.delay_max_ms} ms"
    ),
    h.Configured: lambda w, e: "begins with " + " ".join(f"{name}={value}" for name, value in e.flags),
    h.LimitsSeen: lambda w, e: (
        f"#{e.incarnation} takes for {e.group_id}: limit {e.delivery_count_limit}, lock {e.lock_ms} ms, "
        f"window {e.max_record_locks}"
    ),
    h.HeartbeatAnswered: lambda w, e: (
        f"#{e.incarnation} answers the heartbeat of {e.member_id[:8]} ({e.group_id}), epoch {e.sent_epoch} -> "
        f"{e.member_epoch}{_code(e.code)}" + ("" if e.assignment is None else f": {w.assignment(e.assignment)}")
    ),
    h.StateAnswered: lambda w, e: (
        f"#{e.incarnation} answers {e.call} of {w.share(e.share)}, leader epoch {e.leader_epoch}, state epoch "
        f"{e.state_epoch}{_code(e.code)}: {_state(e.start_offset, e.batches, e.failures)}"
    ),
    h.ProcessChanged: lambda w, e: f"== {e.what} (#{e.incarnation})",
    h.FaultStruck: lambda w, e: f"** {'over: ' if e.ended else ''}{e.fault}",
    h.StateSeen: lambda w, e: (
        f"holds {w.share(e.share)}, state epoch {e.state_epoch}, leader epoch {e.leader_epoch}, finished "
        f"{e.delivery_complete_count}: {_state(e.start_offset, e.batches, e.failures)}"
    ),
    h.GroupSeen: lambda w, e: (
        f"holds group {e.group_id}, epoch {e.group_epoch}, assigned at {e.assignment_epoch}, members "
        f"{_few(f'{member[:8]} at {epoch}' for member, epoch in e.members)}; target {_target(w, e)}"
    ),
    h.SizesSeen: lambda w, e: "sizes " + _few(f"{name} {size}/{bound}" for name, size, bound in _fullest(e.sizes)),
    h.PhaseBegan: lambda w, e: f"-- {e.phase}",
}
