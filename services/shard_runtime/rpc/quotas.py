"""Limits what the clients of a user or of a client id may do at this node (CM-191, CM-192). Pure: it never waits, and
the clock is passed in.

A quota is kept as one number: the time at which all that was used will be paid for, at the quota's rate. More may be
used while that is less than the quota's burst away; what is used then may exceed the burst, and is paid for later. So
over a long time no more than the rate is used, whatever the sizes of requests, and whatever a client does while it
should wait.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Final

from kip932.acls import ANONYMOUS
from kip932.errors import ThrottlingQuotaExceededError
from kip932.quotas import (
    CONSUMER_BYTE_RATE,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    AppliedQuota,
    QuotaEntity,
    QuotasOf,
    applied,
    quota_text,
    user_of,
)

#: How much of a quota may be used at once if it has not been used recently, in ms. As in Kafka, where the window of a
#: quota is 1 s, and that of mutations is about ten times as long.
BURST_MS: Final = {PRODUCER_BYTE_RATE: 1_000, CONSUMER_BYTE_RATE: 1_000, MUTATION_RATE: 10_000}
#: The longest that a client is asked to wait. It is asked again afterwards.
THROTTLE_MAX_MS: Final = 30_000
#: The longest that a request waits at this node, because its client did not wait, or others used the quota.
WAIT_MAX_MS: Final = 10_000
#: The most users, client ids and pairs of both whose use is counted. Any others share one quota.
TRACKED_MAX: Final = 10_000
#: How often the table is searched for room for further ones while there is none.
_SWEEP_MS: Final = 1_000
#: The names of what is limited, in metrics.
KINDS: Final = {PRODUCER_BYTE_RATE: "produce", CONSUMER_BYTE_RATE: "fetch", MUTATION_RATE: "mutation"}


class Use:
    """What was used of one quota. `rate`: per second. Times are in ms of one clock that never jumps."""

    __slots__ = ("_paid_ms", "burst_ms", "rate")

    def __init__(self, rate: float, burst_ms: int) -> None:
        self.rate = rate
        self.burst_ms = burst_ms
        self._paid_ms = -math.inf

    def delay_ms(self, now_ms: int, pending: float = 0) -> int:
        """Return how long until more may be used, if `pending` is used until then; 0 if it may be used now."""
        owed_ms = max(self._paid_ms - now_ms, 0) + pending * 1000 / self.rate
        return math.ceil(max(owed_ms - self.burst_ms, 0))

    def charge(self, amount: float, now_ms: int) -> None:
        """Note that this amount is used, now or at the end of the current delay."""
        self._paid_ms = max(self._paid_ms, now_ms) + amount * 1000 / self.rate

    def give_back(self, amount: float) -> None:
        """Note that this amount, which was charged, is not used after all."""
        self._paid_ms -= amount * 1000 / self.rate

    def is_paid(self, now_ms: int) -> bool:
        """Return whether nothing is owed: it then equals a new one."""
        return self._paid_ms <= now_ms


class Waiting:
    """The requests that wait for quotas at one node, which end when it shuts down. `has_ended`: none may wait now."""

    __slots__ = ("_ends", "has_ended")

    def __init__(self) -> None:
        self.has_ended = False
        self._ends: set[Callable[[], None]] = set()

    def begin(self, end: Callable[[], None]) -> None:
        """Note a request that waits; `end` ends that, and must not raise."""
        self._ends.add(end)

    def forget(self, end: Callable[[], None]) -> None:
        """Note that it waits no more."""
        self._ends.discard(end)

    def end(self) -> None:
        """End all waits, and let no request wait from now on."""
        self.has_ended = True
        for end in list(self._ends):
            end()


class CallerQuota:
    """One quota of one caller, with those who share it."""

    __slots__ = ("_quotas", "_use", "applied")

    def __init__(self, quotas: ClientQuotas, use: Use, found: AppliedQuota) -> None:
        self.applied = found
        self._quotas = quotas
        self._use = use

    @property
    def at_once(self) -> int:
        """How much of a quota may be used at once if it has not been used recently; at least 1."""
        return max(1, int(self._use.rate * self._use.burst_ms / 1000))

    def delay_ms(self, pending: float = 0) -> int:
        """Return how long the caller has to wait before it may use more; 0 if it may now. `pending`: how much of it
        will certainly be used."""
        return self._use.delay_ms(self._quotas.now_ms(), pending)

    def charge(self, amount: float) -> None:
        """Note that this amount is used."""
        self._use.charge(amount, self._quotas.now_ms())

    def give_back(self, amount: float) -> None:
        """Note that this part of what was charged is not used."""
        self._use.give_back(amount)

    def throttle_ms(self) -> int:
        """Return `throttle_time_ms` for a response, and count it."""
        throttle_ms = min(self.delay_ms(), THROTTLE_MAX_MS)
        if throttle_ms:
            self._quotas.note(self.applied.key, throttle_ms)
        return throttle_ms

    def waits(self, delay_ms: int) -> None:
        """Count that a request of the caller waits at this node."""
        self._quotas.note(self.applied.key, delay_ms)

    @property
    def waiting(self) -> Waiting:
        """The requests that wait for quotas at this node."""
        return self._quotas.waiting

    def refusal(self, what: str) -> ThrottlingQuotaExceededError:
        """Return the error for what the quota does not admit now; `what` says what was not done."""
        return ThrottlingQuotaExceededError(self._text(what))

    def _text(self, what: str) -> str:
        found = self.applied
        return (
            f"{what}, since the quota {found.key}={quota_text(found.rate)} of {found.set_on.text} is used up; try "
            f"again in {self.delay_ms() / 1000:.1f} s, or raise it with sharegroups configs alter"
        )


class Mutations:
    """The mutations of one request, against its caller's quota (CM-193). `quota`: None if there is none."""

    __slots__ = ("_pending", "_quota", "_refused")

    def __init__(self, quota: CallerQuota | None) -> None:
        self._quota = quota
        self._pending = 0
        self._refused = False

    def begin(self) -> None:
        """Forget what was admitted so far: the request is decided from the start."""
        self._pending = 0
        self._refused = False

    def admit(self, number: int) -> None:
        """Note that the request makes this many mutations. Raises ThrottlingQuotaExceededError when the quota is used
        up, by this request's earlier mutations too; then nothing is noted."""
        if self._quota is None:
            return
        if self._quota.delay_ms(self._pending):
            self._refused = True
            raise self._quota.refusal("nothing was changed")
        self._pending += number

    def made(self) -> int:
        """Charge what was admitted. Returns `throttle_time_ms` for the response: 0 unless something was refused."""
        if self._quota is None:
            return 0
        self._quota.charge(self._pending)
        self._pending = 0
        return self._quota.throttle_ms() if self._refused else 0


class ClientQuotas:
    """The quotas at one node, and their use. `now_ms`: a clock that never jumps. `throttled`, `throttled_ms`: how often
    and for how long callers were asked to wait, by key."""

    def __init__(self, now_ms: Callable[[], int], tracked_max: int = TRACKED_MAX) -> None:
        self.now_ms: Final = now_ms
        self.throttled: Final[Counter[str]] = Counter()
        self.throttled_ms: Final[Counter[str]] = Counter()
        self.waiting: Final = Waiting()
        self._quotas: QuotasOf = {}
        self._tracked_max = tracked_max
        self._uses: dict[tuple[str, QuotaEntity], Use] = {}
        self._shared: dict[tuple[str, QuotaEntity], Use] = {}
        self._swept_ms = -math.inf

    def follow(self, quotas: QuotasOf) -> None:
        """Limit by these quotas from now on. One whose value for a caller differs from before counts as not used; what
        is owed for others stays owed, or any change would forgive it."""
        self._quotas = quotas
        if not quotas:
            self._uses.clear()
            self._shared.clear()

    def of(self, key: str, principal: str | None, client_id: str) -> CallerQuota | None:
        """Return the quota of this key that applies to a caller; None if there is none."""
        if not self._quotas:
            return None
        found = applied(self._quotas, key, user_of(principal or ANONYMOUS), client_id)
        return None if found is None else CallerQuota(self, self._use(found), found)

    def note(self, key: str, throttle_ms: int) -> None:
        """Count that a caller is asked to wait, or waits here."""
        self.throttled[key] += 1
        self.throttled_ms[key] += throttle_ms

    @property
    def tracked(self) -> int:
        """How many users, client ids and pairs are known."""
        return len(self._uses)

    def _use(self, found: AppliedQuota) -> Use:
        place = found.key, found.shared_by
        use = self._uses.get(place)
        if use is not None and use.rate == found.rate:
            return use
        new = Use(found.rate, BURST_MS[found.key])
        if use is None and len(self._uses) >= self._tracked_max and not self._sweep():
            # Names that clients make up must neither take memory without bound, nor make this node forget what is owed.
            shared = self._shared.get((found.key, found.set_on))
            if shared is None or shared.rate != found.rate:
                shared = self._shared[found.key, found.set_on] = new
            return shared
        self._uses[place] = new
        return new

    def _sweep(self) -> bool:
        """Forget those who owe nothing, at most once in a while. Returns whether there is room now."""
        now_ms = self.now_ms()
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            self._uses = {place: use for place, use in self._uses.items() if not use.is_paid(now_ms)}
        return len(self._uses) < self._tracked_max
