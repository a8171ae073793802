"""Collects the origins, causes and reasons of a queue's dead letters, to list them if a filter's value matches none
(CT-122)."""

from __future__ import annotations

from typing import Final

from kip932.nearest_name import did_you_mean
from kip932.printable import printable
from sharegroups.cli.dlq.choosing import Filters
from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.rows import reason_line

#: How many values are remembered, limited because the headers of dead letters come from other programs; and how many
#: are printed.
_KEPT_MAX: Final = 1_000
_NAMED_MAX: Final = 10


class Values:
    """The origins, causes and reasons of the dead letters read; only those of the filters' group, if they name one."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters
        self._by_origin = Filters(origin=filters.origin)
        self._by_cause = Filters(cause=filters.cause)
        self._by_reason = Filters(reason=filters.reason)
        self._has_origin = filters.origin is None
        self._has_cause = filters.cause is None
        self._has_reason = filters.reason is None
        self._origins: set[str] = set()
        self._causes: set[str] = set()
        self._reasons: set[str] = set()

    def note(self, letter: Letter) -> None:
        """Add a dead letter that was read."""
        if self._filters.group not in (None, letter.group):
            return
        self._has_origin = self._has_origin or self._by_origin.passes(letter, 0)
        self._has_cause = self._has_cause or self._by_cause.passes(letter, 0)
        self._has_reason = self._has_reason or self._by_reason.passes(letter, 0)
        if letter.origin is not None and len(self._origins) < _KEPT_MAX:
            topic, asked = printable(letter.origin.topic), self._filters.origin
            by_topic = asked is None or asked.partition is None
            self._origins.add(topic if by_topic else f"{topic}:{letter.origin.partition}")
        if letter.cause and len(self._causes) < _KEPT_MAX:
            self._causes.add(printable(letter.cause))
        if letter.reason and len(self._reasons) < _KEPT_MAX:
            self._reasons.add(reason_line(letter))

    def missing(self) -> list[str]:
        """Return a line for each filter whose value no dead letter has. The line lists the existing values.

        Empty if no dead letters were read, since the value may then be correct.
        """
        group = "" if self._filters.group is None else f" of group {printable(self._filters.group)}"
        lines: list[str] = []
        if not self._has_origin and self._origins:
            assert self._filters.origin is not None
            topic, partition = self._filters.origin.topic, self._filters.origin.partition
            asked = topic if partition is None else f"{topic}:{partition}"
            near = did_you_mean(asked, self._origins) if partition is None else ""
            lines.append(f"No letter{group} is about {printable(asked)}.{near} They are about: {_some(self._origins)}.")
        for has, found, asked_text, what in (
            (self._has_cause, self._causes, self._filters.cause, "cause"),
            (self._has_reason, self._reasons, self._filters.reason, "reason"),
        ):
            if not has and found:
                named = _some({repr(one) for one in found})
                asked = printable(asked_text or "")
                lines.append(f"No letter{group} has a {what} with {asked!r} in it. Their {what}s: {named}.")
        return lines


def _some(values: set[str]) -> str:
    more = len(values) - _NAMED_MAX
    return ", ".join(sorted(values)[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
