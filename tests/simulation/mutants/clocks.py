"""Planted bugs in clients' timing: from when a time is measured, for how long, and up to which limit. Tests with late,
refused and lost responses find them.

Each is written as (name, its mistake, rules, edits); the edits are of one module each.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_TESTS: Final = ("tests/properties/test_clients_clocks.py",)
_MEMBERS: Final = ("tests/unit/sharegroups/aio/test_throttled_members.py",)
#: The tests of bugs whose schedule rarely occurs by chance.
_OTHER_TESTS: Final = {
    "heartbeats-held-back": _MEMBERS,
    "heartbeats-count-from-the-answer": _MEMBERS,
    "wishes-without-end": ("tests/unit/sharegroups/connection/core/test_throttle.py",),
}
_SESSION: Final = "sharegroups.consuming.share_session"
_KEEPING: Final = "sharegroups.consuming.lock_renewals"
_THROTTLED: Final = "sharegroups.connection.cluster"
_HEARTBEATS: Final = "sharegroups.consuming.heartbeats"
_LEDGER: Final = "sharegroups.consuming.ack_ledger"

_CLOCKS: Final[tuple[tuple[str, str, tuple[str, ...], tuple[Edit, ...]], ...]] = (
    (
        "fetched-lock-from-the-answer",
        "the lock of fetched records counts from the answer of the fetch",
        ("CL-82",),
        (Edit(_SESSION, "step.generation, self._sent_ms, self", "step.generation, self._now_ms(), self"),),
    ),
    (
        "kept-lock-from-the-answer",
        "the lock of a kept record counts from the answer of its renewal",
        ("CL-82", "CL-94"),
        (Edit(_KEEPING, "lock = Lock(ack.sent_ms, ", "lock = Lock(_now_ms(), "),),
    ),
    (
        "renewed-lock-from-the-answer",
        "the lock of a record that the application renewed counts from the answer",
        ("CL-82", "CL-27"),
        (
            Edit(
                _LEDGER,
                "        acquired_ms=ack.sent_ms,\n",
                "        acquired_ms=int(__import__('asyncio').get_running_loop().time() * 1000),\n",
            ),
        ),
    ),
    (
        "kept-lock-of-former-length",
        "a renewal by keep_alive is taken for as long as the lock before",
        ("CL-82", "CL-94"),
        (Edit(_KEEPING, "ack.lock_ms or ack.delivered.lock_ms", "ack.delivered.lock_ms"),),
    ),
    (
        "renewed-lock-of-former-length",
        "a renewal by the application is taken for as long as the lock before",
        ("CL-82", "CL-27"),
        (Edit(_LEDGER, "lock_ms=ack.lock_ms or old.lock_ms", "lock_ms=old.lock_ms"),),
    ),
    (
        "lost-by-the-loop-alone",
        "a kept lock is not lost by the clock, but when the keeper comes to check it",
        ("CL-96",),
        (Edit(_KEEPING, "if lock is None or int(self._clock() * 1000) < lock.ends_ms:", "if True:"),),
    ),
    (
        "handed-out-over",
        "records whose lock ran out in the buffer are handed out",
        ("CL-83",),
        (Edit("sharegroups.consuming.fetcher", "if part.is_stale(now_ms, self._member.hold_ms):", "if False:"),),
    ),
    (
        "heartbeats-held-back",
        "heartbeats wait for as long as nodes ask, whenever the one before was sent",
        ("CL-86",),
        (
            Edit(
                _HEARTBEATS,
                "        return max(0.0, self._sent_s + UNSENT_S - asyncio.get_running_loop().time())\n",
                "        return math.inf\n",
            ),
        ),
    ),
    (
        "heartbeats-count-from-the-answer",
        "how long a heartbeat may be held back counts from the answer of the one before",
        ("CL-86",),
        (
            Edit(
                _HEARTBEATS,
                "            named = wire.address_of",
                "            self._sent_s = asyncio.get_running_loop().time()\n            named = wire.address_of",
            ),
            Edit(
                _HEARTBEATS,
                "                outcome = membership.unanswered(heartbeat, problem, self._now_ms())\n",
                "                outcome = membership.unanswered(heartbeat, problem, self._now_ms())\n"
                "                self._sent_s = asyncio.get_running_loop().time()\n",
            ),
        ),
    ),
    (
        "interval-from-the-answer",
        "the heartbeat interval counts from the answer, however late, and an answer that is lost delays the next one",
        ("CL-152",),
        (
            Edit(
                _HEARTBEATS,
                "        self._membership.succeeded(heartbeat,",
                "        self._membership._sent_at_ms = self._now_ms() + 20_000\n"
                "        self._membership.succeeded(heartbeat,",
            ),
        ),
    ),
    (
        "wish-from-the-request",
        "for how long a node wants no call counts from the request, not from the answer",
        ("CL-86",),
        (
            Edit(
                _THROTTLED,
                "        try:\n            response = await self._transport",
                "        began_ms = _now_ms()\n        try:\n            response = await self._transport",
            ),
            Edit(
                _THROTTLED,
                '        throttle_ms = int(getattr(response, "throttle_time_ms", 0))\n',
                '        throttle_ms = int(getattr(response, "throttle_time_ms", 0)) - (_now_ms() - began_ms)\n',
            ),
        ),
    ),
    (
        "wish-on-a-stream-unheard",
        "what a leader asks for in the answer to a ShareFetch is not kept",
        ("CL-86",),
        (Edit(_SESSION, "            self.link.note_throttle(fetch.throttle_time_ms)\n", "            pass\n"),),
    ),
    (
        "wishes-without-end",
        "wishes in a row hold a request back for as long as they come",
        ("CL-86",),
        (
            Edit(
                "sharegroups.connection.core.throttle",
                "min(now_ms + throttle_ms, since_ms + THROTTLE_MAX_MS)",
                "now_ms + min(throttle_ms, THROTTLE_MAX_MS)",
            ),
        ),
    ),
    (
        "given-up-with-older-ones",
        "batches that went together are given up together, when the time of the oldest is over",
        ("CM-43", "CL-152"),
        (
            Edit(
                "sharegroups.producing.sender",
                "if not_before_ms - group.batches[-1].created_ms < timeout_ms:",
                "if not_before_ms - group.created_ms < timeout_ms:",
            ),
        ),
    ),
    (
        "time-from-the-last-try",
        "delivery.timeout.ms begins again with each try",
        ("CM-43", "CL-152"),
        (
            Edit(
                "sharegroups.producing.core.produce_buffer",
                "        lane.put_back(group.batches)\n",
                "        lane.put_back(group.batches)\n"
                "        for batch in group.batches:\n            batch.created_ms = not_before_ms\n",
            ),
        ),
    ),
    (
        "given-up-early",
        "records that wait are given up at half of their time",
        ("CM-43", "CL-152"),
        (
            Edit(
                "sharegroups.producing.sender",
                "self.buffer.expired(now_ms - timeout_ms)",
                "self.buffer.expired(now_ms - timeout_ms // 2)",
            ),
        ),
    ),
    (
        "commit-waits-on",
        "commit_sync takes its time twice",
        ("CL-24", "CL-34"),
        (
            Edit(
                "sharegroups.consuming.engine",
                "        deadline = None if timeout_s is None else loop.time() + timeout_s\n",
                "        deadline = None if timeout_s is None else loop.time() + 2 * timeout_s\n",
            ),
        ),
    ),
    (
        "close-takes-its-time-twice",
        "closing the sessions may take all of the time of close(), and the leave as much again",
        ("CL-28",),
        (
            Edit(
                "sharegroups.consuming.consumer_runtime",
                "        deadline_s = loop.time() + budget_s\n        self._closing = True\n        try:\n"
                "            await self.watch.close()\n            await self.fetcher.close(budget_s)\n",
                "        self._closing = True\n        try:\n            await self.watch.close()\n"
                "            await self.fetcher.close(budget_s)\n"
                "            deadline_s = loop.time() + budget_s\n",
            ),
        ),
    ),
)

CLOCKS: Final = tuple(
    Mutant(name, wrong, rules, edits, _OTHER_TESTS.get(name, _TESTS)) for name, wrong, rules, edits in _CLOCKS
)
