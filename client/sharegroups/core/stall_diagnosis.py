"""Why no record comes, in words, and when a person is told: a pure judgement without clock, cluster or log.

After a while of silence the host looks; what it finds is told once, and again when the cause changes or comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Silence after which the cluster is looked at; each further silence is twice as long, up to the last number.
LOOK_AFTER_S: Final = 2.0
LOOK_AFTER_MAX_S: Final = 30.0

UNREACHABLE: Final = "unreachable"
UNKNOWN: Final = "unknown"
LEADERLESS: Final = "leaderless"
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps records from going or coming.

    `kind` is UNREACHABLE, UNKNOWN, LEADERLESS or the name of the topic's error; `where` the servers asked; `topics`
    those concerned; `detail` the cause's own words, or the partitions without a leader.
    """

    kind: str
    where: str
    topics: tuple[str, ...] = ()
    detail: str = ""

    @property
    def cause(self) -> tuple[str, tuple[str, ...]]:
        """The same for the same trouble, whatever its details."""
        return self.kind, self.topics

    def text(self, servers: str = "bootstrap.servers", name: str = "the name given to subscribe()") -> str:
        """What was found and what to try; `servers` and `name` are where the reader has said them."""
        if self.kind == UNREACHABLE:
            return (
                f"no cluster answers at {self.where} ({self.detail}). "
                f"Start one with `sharegroups up`, or correct {servers}."
            )
        topics = _listed(self.topics)
        if self.kind == UNKNOWN:
            verb = "does" if len(self.topics) == 1 else "do"
            return (
                f"{topics} {verb} not exist in the cluster at {self.where}. "
                f"Create it with `sharegroups topics create {self.topics[0]}`, or correct {name}."
            )
        if self.kind == LEADERLESS:
            verb = "has" if len(self.topics) == 1 else "have"
            return (
                f"{topics} at {self.where} {verb} no live leader for partition {self.detail}. "
                "Is a partition leader running? `sharegroups topics describe` shows who leads."
            )
        return f"{topics} at {self.where}: {self.kind}: {self.detail}"


class Lookout:
    """When to look, and what to tell. Times are seconds of one clock."""

    def __init__(self, now_s: float) -> None:
        self._silence_s = LOOK_AFTER_S
        self._since_s = now_s
        self._told: Trouble | None = None

    @property
    def due_s(self) -> float:
        """When to look, should it stay silent."""
        return self._since_s + self._silence_s

    def heard(self, now_s: float) -> None:
        """Records came, or none are wanted."""
        self._silence_s, self._since_s, self._told = LOOK_AFTER_S, now_s, None

    def looked(self, found: Trouble | None, now_s: float) -> Trouble | None:
        """What to tell now of what was found."""
        self._silence_s, self._since_s = min(self._silence_s * 2, LOOK_AFTER_MAX_S), now_s
        before, self._told = self._told, found
        if found is None or (before is not None and before.cause == found.cause):
            return None
        return found


def _listed(topics: tuple[str, ...]) -> str:
    if len(topics) == 1:
        return f"topic {topics[0]!r}"
    names = ", ".join(repr(topic) for topic in topics[:_NAMED_MAX])
    more = len(topics) - _NAMED_MAX
    return f"topics {names}" + (f" and {more} more" if more > 0 else "")
