"""Planted bugs in the Kafka listener: in the order of its answers, its bounds, who may ask what, and what becomes of a
request and of records on their way. The simulator has no client of Kafka's, so all of them are found by tests."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_CONNECTION: Final = "kafka_listener.connection"
_CALLS: Final = "kafka_listener.calls"
_BATCHES: Final = "kip932.kafka_batches"
_UNIT: Final = "tests/unit/kafka_listener"
_AT_A_PORT: Final = ("tests/integration/kafka_listener/test_connections.py",)
_CALLERS: Final = ("tests/integration/kafka_listener/test_callers.py",)

CONNECTIONS: Final = (
    Mutant(
        "answers-overtake",
        "an answer leaves as soon as it is ready, before those of earlier requests",
        ("KL-4",),
        (
            Edit(
                "kafka_listener.core.order",
                "        while self._places and self._places[0].settled:\n"
                "            answer = self._places.popleft().answer\n",
                "        for place in [each for each in self._places if each.settled]:\n"
                "            self._places.remove(place)\n            answer = place.answer\n",
            ),
        ),
        (f"{_UNIT}/core/test_order.py",),
    ),
    Mutant(
        "not-read-again",
        "a connection that was not read, since 64 requests were under way, is never read again",
        ("KL-4",),
        (Edit(_CONNECTION, "                self._transport.resume_reading()\n", "                pass\n"),),
        _AT_A_PORT,
    ),
    Mutant(
        "pause-dropped",
        "an answer that a handler wants held back is sent at once",
        ("KL-16",),
        (
            Edit(
                _CONNECTION,
                "                    await asyncio.sleep(bounded_ms(response.delay_ms) / 1000)\n",
                "",
            ),
        ),
        _AT_A_PORT,
    ),
)

CALLERS: Final = (
    Mutant(
        "strangers-may-ask",
        "with access control, a client that has not said who it is may send any request",
        ("KL-22",),
        (
            Edit(
                "kafka_listener.core.versions",
                "    return authenticated or key in BEFORE_AUTHENTICATION\n",
                "    return True\n",
            ),
        ),
        _CALLERS,
    ),
    Mutant(
        "rights-of-another-rpc",
        "a call has the rights of the connection's first call, not those that its own RPC needs",
        ("KL-5",),
        (
            Edit(
                _CALLS,
                "        context = self._contexts.get(rpc)\n",
                "        context = next(iter(self._contexts.values()), None)\n",
            ),
        ),
        (f"{_UNIT}/test_calls.py",),
    ),
    Mutant(
        "passwords-at-once",
        "while a password is checked, further requests begin, also further passwords",
        ("KL-22",),
        (Edit(_CONNECTION, "            self._stop(_AUTHENTICATING)\n", "            pass\n"),),
        _CALLERS,
    ),
)

SESSIONS: Final = (
    Mutant(
        "session-outlives-its-connection",
        "when a connection is lost, its members' streams go on for the requests that they have",
        ("KL-6", "KL-81"),
        (Edit(_CALLS, "            if key[0] == _LEADER:\n", "            if key[0] in (_LEADER, _MEMBER):\n"),),
        (f"{_UNIT}/test_calls.py",),
    ),
    Mutant(
        "members-share-a-stream",
        "all members of a group that use one connection have one stream, and so one session",
        ("KL-6", "KL-81"),
        (Edit(_CALLS, '_stream("share_stream", _MEMBER, group, member)', '_stream("share_stream", _MEMBER, group)'),),
        (f"{_UNIT}/test_calls.py", f"{_UNIT}/requests/test_share_schedules.py"),
    ),
    Mutant(
        "types-of-the-first",
        "an acknowledgement of several types has the first one for all its records",
        ("KL-84",),
        (
            Edit(
                "kafka_listener.requests.share_acknowledge",
                "                    acknowledge_types=batch.acknowledge_types,\n",
                "                    acknowledge_types=batch.acknowledge_types[:1],\n",
            ),
        ),
        (f"{_UNIT}/requests/test_share_acknowledge.py", f"{_UNIT}/requests/test_share_fetch.py"),
    ),
)

RECORDS: Final = (
    Mutant(
        "offsets-as-stored",
        "a batch of Kafka's producers is served with the base offset that it was stored with, 0",
        ("KL-53", "KL-83"),
        (
            Edit(
                _BATCHES,
                "    return [_front(data, base_offset, leader_epoch),",
                "    return [_front(data, 0, leader_epoch),",
            ),
        ),
        (f"{_UNIT}/requests/test_fetch.py", f"{_UNIT}/requests/test_share_fetch.py"),
    ),
    Mutant(
        "leader-epoch-is-stored",
        "a batch keeps the leader epoch that its producer wrote, so the same records are stored as other bytes",
        ("KL-49",),
        (Edit(_BATCHES, "(_front(data, 0, _NO_EPOCH), memory", "(_front(data, 0, 0), memory"),),
        ("tests/unit/kip932/test_kafka_batches.py", f"{_UNIT}/requests/test_produce.py"),
    ),
    Mutant(
        "refusal-without-answer-is-lost",
        "records of a Produce without an answer that are refused are lost without a sign",
        ("KL-50",),
        (
            Edit(
                "kafka_listener.requests.produce",
                "    if refused is not None:\n        raise refused\n    return None\n",
                "    return None\n",
            ),
        ),
        (f"{_UNIT}/requests/test_produce.py",),
    ),
    Mutant(
        "log-begins-at-0",
        "a Fetch says that the log begins at offset 0, whatever was deleted from it",
        ("KL-59",),
        (
            Edit(
                "kafka_listener.requests.fetch",
                "        log_start_offset=result.log_start_offset,\n",
                "        log_start_offset=0,\n",
            ),
        ),
        (f"{_UNIT}/requests/test_fetch.py",),
    ),
)

KAFKA_LISTENER: Final = (*CONNECTIONS, *CALLERS, *SESSIONS, *RECORDS)
