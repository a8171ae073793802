"""INV-10, consistent memory (PL-102), and no unbounded growth: windows, sessions, groups, queues, caches and streams
stay within their limits."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import RANGE_MAX
from tests.simulation.final import Final
from tests.simulation.history import History, SizesSeen
from tests.simulation.leader_events import Locked, MemoryWrong


class Window:
    """New offsets never take a window beyond its limit, except by the rest of the producer batch in which it ends
    (PL-132)."""

    rules: tuple[str, ...] = ("INV-10",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every range as it was delivered. A window that spans the hole of a lost tail holds no more records than
        others (CM-47). Offsets below the window's end need no room: they are delivered again, also those about which
        a former leader stored nothing (PL-607)."""
        del final
        for event in history.of(Locked):
            if event.new_offsets and event.max_locks + event.batch_max <= event.in_flight < RANGE_MAX:
                yield Violation(
                    "INV-10",
                    f"{event.share} has {event.in_flight} offsets in flight, {event.new_offsets} of them new, after "
                    f"{event.first_offset}-{event.last_offset} went to {event.member_id}; at most {event.max_locks} "
                    f"and the rest of a batch of {event.batch_max} may be",
                    (event,),
                )


class Memory:
    """A window's invariants hold after every event, and no record undergoes a transition that is not in the table of
    PL-102."""

    rules: tuple[str, ...] = ("PL-102",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Report the first contradiction of every object, since one leads to others."""
        del final
        seen: set[tuple[str, int, int]] = set()
        for event in history.of(MemoryWrong):
            key = (event.process, event.incarnation, event.object_id)
            if key not in seen:
                seen.add(key)
                yield Violation("PL-102", f"{event.share} at {event.process}: {event.sentence}", (event,))


class Bounds:
    """Everything that may grow has a limit and stays within it (INV-10, CM-18, CM-62); no stray key remains in the
    store."""

    rules: tuple[str, ...] = ("INV-10", "CM-18", "CM-21")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the sampled sizes of every process, then streams and stray keys at the end."""
        seen: set[tuple[str, str]] = set()
        for event in history.of(SizesSeen):
            for name, size, bound in event.sizes:
                if size > bound and (event.process, name) not in seen:
                    seen.add((event.process, name))
                    yield Violation("INV-10", f"{event.process}: {name} is {size}, more than {bound}", (event,))
        for stream, (length, bound) in final.streams.items():
            if length > bound:
                yield Violation("CM-18", f"{stream} holds {length} entries at rest, more than {bound}")
        for key in final.leftovers:
            yield Violation("CM-21", f"{key} is left in the store, and nothing owns it")
