"""Describes why no records are received or sent, and decides when to log it. Pure: no clock, cluster or logger.

After a few seconds without records the host examines the cluster. It logs a cause once, again when the cause changes
or returns; that no cluster responds also from time to time while it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from kip932.handshakes import is_about_handshake

#: Seconds without records before the host examines the cluster. The interval doubles each time, up to the second value.
EXAMINE_AFTER_S: Final = 2.0
EXAMINE_AFTER_MAX_S: Final = 30.0
#: Seconds after which it is logged again that no cluster responds, at the next examination.
REPEAT_S: Final = 60.0
#: What an error says in place of "start one", when a connection was made and ended during the handshake.
SOMETHING_LISTENS: Final = "Something listens there"

UNREACHABLE: Final = "unreachable"
UNAUTHENTICATED: Final = "unauthenticated"
UNKNOWN: Final = "unknown"
LEADERLESS: Final = "leaderless"
UNCOORDINATED: Final = "uncoordinated"
STATELESS: Final = "stateless"
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason why records cannot be sent or fetched.

    `kind` is UNREACHABLE, UNAUTHENTICATED, UNKNOWN, LEADERLESS, UNCOORDINATED, STATELESS or the name of the topic's
    error. `where` lists the servers that were asked, `topics` the affected topics. `detail` is the error's text, the
    partitions without a leader, or the hint at the topic that was probably meant. `group` is the group that no
    coordinator serves, or whose state of a partition is not available. `lasted_s`: the seconds since this was first
    logged; 0 the first time.
    """

    kind: str
    where: str
    topics: tuple[str, ...] = ()
    detail: str = ""
    group: str = ""
    lasted_s: float = 0.0

    @property
    def cause(self) -> tuple[str, bool, tuple[str, ...]]:
        """The kind, whether it is about TLS, and topics. Two findings with the same cause are the same trouble, even if
        their details differ."""
        return self.kind, self._is_about_handshake, self.topics

    @property
    def _is_about_handshake(self) -> bool:
        return self.kind == UNREACHABLE and is_about_handshake(self.detail)

    def text(
        self,
        servers: str = "bootstrap.servers",
        name: str = "the name given to subscribe()",
        tls: str = "the client's security.protocol and ssl.*",
    ) -> str:
        """Return what was found, for how long, and what to try. `servers`, `name` and `tls` are what the text calls the
        settings that the reader can correct."""
        lasted = f" This has lasted for {self.lasted_s:.0f} s." if self.lasted_s else ""
        if self.kind in {UNREACHABLE, UNAUTHENTICATED, UNCOORDINATED, STATELESS}:
            return self._without_topics(servers, tls) + lasted
        return self._about_topics(name) + lasted

    def _about_topics(self, name: str) -> str:
        topics = _listed(self.topics)
        if self.kind == UNKNOWN:
            verb = "does" if len(self.topics) == 1 else "do"
            return (
                f"{topics} {verb} not exist in the cluster at {self.where}.{self.detail} "
                f"Create it with `sharegroups topics create {quote(self.topics[0])}`, or correct {name}."
            )
        if self.kind == LEADERLESS:
            verb = "has" if len(self.topics) == 1 else "have"
            return (
                f"{topics} at {self.where} {verb} no live leader for partition {self.detail}. "
                "Is a partition leader running? `sharegroups topics describe` shows who leads."
            )
        return f"{topics} at {self.where}: {self.kind}: {self.detail}"

    def _without_topics(self, servers: str, tls: str) -> str:
        if self._is_about_handshake:
            return (
                f"no connection to the cluster at {self.where} ({self.detail}). "
                f"{SOMETHING_LISTENS}: check {tls}, and {servers}."
            )
        if self.kind == UNREACHABLE:
            return (
                f"no cluster answers at {self.where} ({self.detail}). "
                f"Start one with `sharegroups up`, or correct {servers}."
            )
        if self.kind == UNAUTHENTICATED:
            return (
                f"the cluster at {self.where} does not accept this client ({self.detail.rstrip('.')}). "
                "Give it a token, password or certificate that is accepted."
            )
        if self.kind == UNCOORDINATED:
            return (
                f"no coordinator at {self.where} serves group {self.group!r} ({self.detail.rstrip('.')}). Is a group "
                "coordinator running? When it is, check its log, and its store with `sharegroups state check`."
            )
        return f"group {self.group!r} gets nothing from {self.detail}"


class StallTimer:
    """Decides when the host examines the cluster, and what it logs. Times are seconds of one monotonic clock."""

    def __init__(self, now_s: float) -> None:
        self._silence_s = EXAMINE_AFTER_S
        self._since_s = now_s
        self._logged: Trouble | None = None
        #: When that cause was first logged, and when last.
        self._first_s = self._last_s = now_s
        #: When the loss of the cluster was logged; None if it was not, or if the cluster answers again.
        self._outage_logged_s: float | None = None

    @property
    def due_s(self) -> float:
        """When the host must examine the cluster, unless `heard` is called first."""
        return self._since_s + self._silence_s

    def heard(self, now_s: float) -> None:
        """Reset the timer, because records arrived or none are wanted."""
        self._silence_s, self._since_s, self._logged = EXAMINE_AFTER_S, now_s, None

    def doubted(self, now_s: float) -> None:
        """Make the next examination due soon, because no node answered a request."""
        if self._logged is None and self.due_s > now_s + EXAMINE_AFTER_S:
            self._silence_s, self._since_s = EXAMINE_AFTER_S, now_s

    def examined(self, found: Trouble | None, now_s: float) -> Trouble | None:
        """Note the result of the host's examination. Returns what the host must log now; None if nothing is
        new, and the last line about it is not old."""
        self._silence_s, self._since_s = min(self._silence_s * 2, EXAMINE_AFTER_MAX_S), now_s
        before, self._logged = self._logged, found
        if found is None:
            return None
        if before is not None and before.cause == found.cause:
            if found.kind != UNREACHABLE or now_s - self._last_s < REPEAT_S:
                return None
            self._last_s = now_s
            return replace(found, lasted_s=now_s - self._first_s)
        self._first_s = self._last_s = now_s
        if found.kind == UNREACHABLE and self._outage_logged_s is None:
            self._outage_logged_s = now_s
        return found

    def answered(self, now_s: float) -> float | None:
        """Note that a node has answered. Returns the seconds since the outage was logged; None when none was.

        After that, a new outage is logged again, and the next examination is due soon.
        """
        lost_s, self._outage_logged_s = self._outage_logged_s, None
        if lost_s is None:
            return None
        self.heard(now_s)
        return now_s - lost_s


def _listed(topics: tuple[str, ...]) -> str:
    if len(topics) == 1:
        return f"topic {topics[0]!r}"
    names = ", ".join(repr(topic) for topic in topics[:_NAMED_MAX])
    more = len(topics) - _NAMED_MAX
    return f"topics {names}" + (f" and {more} more" if more > 0 else "")
