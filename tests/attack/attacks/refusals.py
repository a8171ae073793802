"""Calls all RPCs as a user without permissions, with random fields and changed bytes: every response must be a refusal,
and refusals must not differ between names that exist and names that do not (CM-61).

Each request is sent twice with the same random values: once with existing names, once with unused names of the same
length. Of CM-61 this shows what a refusal discloses; not what entries and super users allow, when a change takes effect
(b, c, e), or the log line and the count of (d). Apart from the names, the responses must be the same, byte for byte.
How long they take is not compared. Topic ids are drawn from known and unknown ones, the same in both requests, since an
unknown id may get another error, as in Kafka.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError, Message

from kip932.internal.v1 import member_connections_service_pb2, member_sessions_service_pb2
from kip932.rpc.transport import Method, service_methods
from shard_runtime.rpc.table import RPCS
from sharegroups import Admin, Producer
from tests.attack.attacks.calls import CLIENT_SERVICES, INTERNAL_SERVICES, Draw
from tests.attack.definition import Attack, Target, Who

_TRANSACTION: Final = "taken-transaction"
_CALL_S: Final = 15.0
#: A Fetch without partitions waits as long as its caller.
_FETCH_S: Final = 2.0
_SERVICES: Final = (
    *CLIENT_SERVICES,
    *INTERNAL_SERVICES,
    member_connections_service_pb2.DESCRIPTOR.services_by_name["MemberConnectionsService"],
    member_sessions_service_pb2.DESCRIPTOR.services_by_name["MemberSessionsService"],
)
METHODS: Final[Mapping[str, Method[Message, Message]]] = {
    method.path: method for service in _SERVICES for method in service_methods(service).values()
}
#: The statuses with which a call may end without a response: refused as a whole, not served there, or unreadable.
_STATUSES: Final = frozenset({"PERMISSION_DENIED", "UNIMPLEMENTED", "INVALID_ARGUMENT", "INTERNAL"})
#: The statuses of calls that may be repeated.
_AGAIN: Final = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})
#: Something else may change between two calls, such as the version of the metadata, when others change topics: only a
#: difference that this many pairs show is one between names.
_PAIRS: Final = 3
#: What every caller that gets in may know: the nodes of the cluster, and how often its metadata have changed.
_FOR_ALL: Final = frozenset({"brokers"})
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))


class Names(NamedTuple):
    """Names of things that exist, or names of the same length of things that do not."""

    topic: str
    group: str
    transaction: str
    member: str

    def strange(self, rng: random.Random) -> Names:
        """Return unused names of the same length."""
        return Names(*("".join(rng.choices("bcdfghjk", k=len(name))) for name in self))

    def hidden_in(self, data: bytes) -> bytes:
        """Return the bytes with each of these names replaced."""
        for number, name in enumerate(self):
            data = data.replace(name.encode(), bytes([number]) * len(name))
        return data

    def places(self, data: bytes) -> set[int]:
        """Return the positions at which these names are."""
        found: set[int] = set()
        for name in map(str.encode, self):
            at = data.find(name)
            while at >= 0:
                found.update(range(at, at + len(name)))
                at = data.find(name, at + 1)
        return found


class Answer(NamedTuple):
    """Everything that a caller sees: the status, its text, and the messages."""

    status: str
    words: bytes
    messages: tuple[bytes, ...]

    def without(self, names: Names) -> Answer:
        """Return the answer with its caller's names replaced."""
        return Answer(self.status, names.hidden_in(self.words), tuple(map(names.hidden_in, self.messages)))

    def sorted(self) -> Answer:
        """Return the answer with the bytes of its messages sorted."""
        return self._replace(messages=tuple(bytes(sorted(message)) for message in self.messages))


def used_names(target: Target) -> Names:
    """Return names that are in use; starts a transaction if there is none."""
    settings = target.admin.settings(target.coordinator())
    with Admin(settings) as admin:
        listed = [group.group_id for group in admin.list_groups()]
        described = admin.describe_share_groups(listed)
        members = sorted(
            (group, member.member_id)
            for group, found in described.items()
            if not isinstance(found, Exception)
            for member in found.members
        )
        assert members, f"no group has a member; the groups are {listed}"
        if not _transactions(admin):
            with Producer({**settings, "transactional.id": _TRANSACTION}) as producer, producer.transaction():
                producer.produce(target.topic, b"of a transaction", partition=0)
    return Names(target.topic, members[0][0], _TRANSACTION, members[0][1])


def _transactions(admin: Admin) -> list[str]:
    return [each.transactional_id for each in admin.list_transactions()]


def _there(target: Target) -> set[str]:
    """Describe everything that a caller with permissions could create or delete."""
    with Admin(target.admin.settings(target.coordinator())) as admin:
        return {
            *(f"topic {name} of {len(found.partitions)} partitions" for name, found in admin.list_topics().items()),
            *(f"group {group.group_id}" for group in admin.list_groups()),
            *(f"transaction {name}" for name in _transactions(admin)),
            *(f"entry {acl.text}" for acl in admin.describe_acls()),
        }


class Fuzz:
    """Sends the same request with names that exist and with others, and compares. A context manager."""

    def __init__(self, target: Target, rng: random.Random) -> None:
        self._target = target
        self._rng = rng
        self._used = used_names(target)
        self._stack = ExitStack()
        self._channels: dict[str, grpc.Channel] = {}
        self.counts = Counter[str]()

    def __enter__(self) -> Fuzz:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, path: str) -> None:
        """Send one pair of requests. Raises AssertionError if a response is not a refusal, or discloses anything."""
        rng, strange = self._rng, self._used.strange(self._rng)
        seed, address = rng.getrandbits(64), self._address(path)
        bodies = [self._body(path, names, seed) for names in (self._used, strange)]
        if rng.random() < 0.3:
            bodies = _changed(bodies, (self._used, strange), rng)
        for attempt in range(_PAIRS):
            answers = [self._call(address, path, body) for body in bodies]
            self.counts[answers[0].status] += not attempt
            if any(answer.status in _AGAIN for answer in answers):
                return
            case = f"{path} at {address} with {bodies[0][:200]!r}"
            self._check(case, path, bodies, answers)
            known, unknown = answers[0].without(self._used), answers[1].without(strange)
            if path.endswith("/ListTransactions"):  # it sorts the unknown states that it returns
                known, unknown = known.sorted(), unknown.sorted()
            if known == unknown:
                return
        raise AssertionError(f"{case} shows whether a name exists: {known} and {unknown}")

    def _check(self, case: str, path: str, bodies: Sequence[bytes], answers: Sequence[Answer]) -> None:
        for answer, body in zip(answers, bodies, strict=True):
            assert answer.status in ("OK", *_STATUSES) or _waits(path, body, answer.status), f"{case} returned {answer}"
            for message in answer.messages:
                assert refuses(_parsed(path, message), body), f"{case} was granted: {_parsed(path, message)!s:.500}"
        seen = b"".join((answers[1].words, *answers[1].messages))
        shown = [name for name in self._used if name.encode() in seen]
        assert not shown, f"{case} shows the name {shown[0]!r}, which was not sent"

    def _address(self, path: str) -> str:
        target, rng = self._target, self._rng
        if target.internal and (path.startswith("/kip932.internal") or rng.random() < 0.15):
            return rng.choice(sorted((*target.internal.values(), *target.clients.values())))
        if rng.random() < 0.1 or "ClusterService" in path:
            return target.a_node(rng)
        return target.coordinator() if "GroupCoordinatorService" in path else target.leader()

    def _body(self, path: str, names: Names, seed: int) -> bytes:
        if path not in METHODS:
            return random.Random(seed).randbytes(20)  # of another program, `sharegroups scaler`
        draw = Draw(random.Random(seed), replace(self._target, topic=names.topic), (*names, *names[:2], "y" * 40_000))
        return draw.message(METHODS[path].request_type).SerializeToString()

    def _call(self, address: str, path: str, body: bytes) -> Answer:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._stack.enter_context(self._target.dial.channel(address, _OPTIONS))
            self._channels[address] = channel
        messages: list[bytes] = []
        try:
            if path in METHODS and METHODS[path].streaming:
                duplex: Any = channel.stream_stream(path)
                messages.extend(duplex(iter([body]), timeout=_CALL_S))
            else:
                unary: Any = channel.unary_unary(path)
                timeout_s = _FETCH_S if path.endswith("/Fetch") else _CALL_S
                messages.append(unary(body, timeout=timeout_s))
        except grpc.RpcError as error:
            failed: Any = error
            return Answer(failed.code().name, failed.details().encode(), tuple(messages))
        return Answer("OK", b"", tuple(messages))


def _changed(bodies: list[bytes], names: tuple[Names, Names], rng: random.Random) -> list[bytes]:
    """Change the same bytes of both requests, outside the names; or cut both, or repeat a part."""
    size = len(bodies[0])
    assert size == len(bodies[1]), "the names differ in length"
    kept = names[0].places(bodies[0]) | names[1].places(bodies[1])
    free = [at for at in range(size) if at not in kept]
    if not free:
        return bodies
    at, byte = rng.choice(free), rng.randrange(256)
    match rng.randrange(3):
        case 0:
            return [body[:at] + bytes([byte]) + body[at + 1 :] for body in bodies]
        case 1:
            return [body[:at] for body in bodies]
        case _:
            return [body + body[:at] for body in bodies]


def _waits(path: str, body: bytes, status: str) -> bool:
    """Return whether a call ran into its deadline because it requested nothing: a Fetch without partitions."""
    if status != "DEADLINE_EXCEEDED" or not path.endswith("/Fetch"):
        return False
    request: Any = METHODS[path].request_type()
    request.ParseFromString(body)
    return not any(topic.partitions for topic in request.topics)


def _parsed(path: str, message: bytes) -> Message:
    answer = METHODS[path].response_type()
    try:
        answer.ParseFromString(message)
    except DecodeError as error:
        raise AssertionError(f"{path} returned bytes that are not a response: {message[:80]!r}") from error
    return answer


def refuses(answer: Message, request: bytes) -> bool:
    """Return whether a response is a refusal: it has an error, each of its rows has one, or it has no rows.

    A row without an error field may contain refused rows and names from the request, and nothing else.
    """
    if _code(answer):
        return True
    for field, value in answer.ListFields():
        if field.message_type is None or field.name in _FOR_ALL:
            continue
        rows = value if field.is_repeated else (value,)
        if not all(_code(row) or (not _may_err(row) and _refused_row(row, request)) for row in rows):
            return False
    return True


def _refused_row(row: Message, request: bytes) -> bool:
    named = [value for _, value in row.ListFields() if isinstance(value, str | bytes)]
    sent = all((value.encode() if isinstance(value, str) else value) in request for value in named)
    return sent and refuses(row, request)


def _may_err(message: Message) -> bool:
    """Return whether this is a row with its own error field; the response on a stream has such rows inside it."""
    return "error_code" in message.DESCRIPTOR.fields_by_name and "throttle_time_ms" not in (
        message.DESCRIPTOR.fields_by_name
    )


def _code(message: Message) -> int:
    return int(getattr(message, "error_code", 0))


def _refused(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    deadline, before = time.monotonic() + seconds, set[str]()
    with Fuzz(target, rng) as fuzz:
        before, paths = _there(target), list(RPCS)
        while time.monotonic() < deadline:
            rng.shuffle(paths)
            for path in paths:
                fuzz.ask(path)
    after = _there(target)
    assert not (made := sorted(after - before)), f"a user without permissions created {made}"
    assert not (gone := [each for each in before - after if not each.startswith("group")]), f"deleted: {gone}"
    return ", ".join(f"{count} {status}" for status, count in fuzz.counts.most_common())


REFUSAL_ATTACKS: Final = (
    Attack(
        "without-a-right",
        "All RPCs by a user without permissions, with names that exist and names that do not",
        _refused,
        Who.STRANGER,
        tls_only=True,
    ),
)
