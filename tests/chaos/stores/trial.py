"""A trial with faults of the store, and the losses it allows.

If a cell in docs/guarantees.md says "can be lost", the experiment gives a window: what was confirmed in that time is
treated as unconfirmed, and everything else is judged as usual. In those cells too, no offset may be used twice, and
nothing may be delivered that was not produced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.checker import Place, no_invention, place
from tests.chaos.deployment import Topology
from tests.chaos.experiment import SETTINGS
from tests.chaos.history import Acknowledged, Delivered, Event, Observed, Produced, now_ms, read_history
from tests.chaos.load import LoadOptions
from tests.chaos.stores.deployment import MakeStore, StoreDeployment
from tests.chaos.stores.node import ValkeyNode
from tests.chaos.stores.store import StoreUnderTest
from tests.chaos.trial import Trial
from tests.chaos.verdict import Verdict, judge_history, longest_stall
from tests.chaos.workers import UNKNOWN

TOPOLOGY: Final = Topology(leaders=2, share_coordinators=1, group_coordinators=1, store_replicas=0)
LOAD: Final = LoadOptions(partitions=4, consumers=2, rate=80)
LEASE_MS: Final = 3_000
WINDOWS_FILE: Final = "windows.json"
_REPORTED_LATER_MS: Final = 1_000
"""A confirmation is written down after it came; a machine with other work to do may take this long."""


class Window(NamedTuple):
    """A period, in terms of `now_ms`, in which confirmed events may be lost."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class StoreVerdict:
    """The verdict, and what was lost or accepted twice within the windows that the experiment's cells allow.

    The longest stall is the longest time without any confirmed acknowledgement while records were produced.
    """

    verdict: Verdict
    allowed_lost: int
    allowed_accepted_twice: int

    def __str__(self) -> str:
        found = self.verdict
        return (
            f"records={found.records} lost={found.lost} accepted_twice={found.accepted_twice} "
            f"within_cells: lost={self.allowed_lost} accepted_twice={self.allowed_accepted_twice} "
            f"longest_stall_ms={found.stall.any_ms}"
        )


class StoreTrial(Trial):
    """The argument of a function of `plays`."""

    deployment: StoreDeployment

    def __init__(self, deployment: StoreDeployment, folder: Path, seed: int, topic: str) -> None:
        super().__init__(deployment, folder, seed, topic, LOAD)
        self.windows: list[Window] = []

    @property
    def store(self) -> StoreUnderTest:
        """The store under test."""
        return self.deployment.store

    @property
    def min_insync_replicas(self) -> int:
        """The number of copies that confirm a write."""
        return self.deployment.min_insync_replicas

    @property
    def every_copy_confirms(self) -> bool:
        """Whether every replica that may take over has everything that was confirmed."""
        return self.min_insync_replicas == self.store.replicas + 1

    def busy_master(self) -> ValkeyNode:
        """Return a master that holds logs of topic-partitions."""
        return self.store.master_of(self.topic_key())

    def topic_key(self) -> str:
        """Return the key of a topic-partition's owner record."""
        return self._some("{tp:*}:owner")

    def state_key(self) -> str:
        """Return the key of the owner record of one of the share coordinator's shards."""
        return self._some("{sgs:*}:owner")

    def _some(self, pattern: str) -> str:
        masters = [node for node in self.store.nodes if node.is_master]
        return str(self.rng.choice(sorted(key for node in masters for key in node.ask("KEYS", pattern))))

    def note(self, fault: str, *targets: ValkeyNode) -> int:
        """Record a fault that the trial itself causes in store nodes; return its time."""
        return self._record(fault, " ".join(target.name for target in targets))

    def allow_loss(self, since_ms: int, until_ms: int | None = None) -> None:
        """Allow the loss of what was confirmed from `since_ms` on, by default until now. The window is written next to
        the histories."""
        end = now_ms() if until_ms is None else until_ms
        self.windows.append(Window(since_ms - _REPORTED_LATER_MS, end + _REPORTED_LATER_MS))
        (self.folder / WINDOWS_FILE).write_text(json.dumps(self.windows) + "\n")

    def judged(self) -> StoreVerdict:
        """Return the verdict on the histories, once `finish` has returned."""
        return judge_kept(self.folder)


def judge_kept(folder: Path) -> StoreVerdict:
    """Return the verdict on what a trial left in its folder."""
    kept = folder / WINDOWS_FILE
    windows = [Window(*window) for window in json.loads(kept.read_text())] if kept.exists() else []
    return judge(read_history(sorted(folder.glob("*.jsonl"))), windows)


def judge(events: Sequence[Event], windows: Sequence[Window]) -> StoreVerdict:
    """Return the verdict on a history, allowing for losses within these windows."""
    allowed = [event for event in events if _within(event, windows)]
    checks = (lambda _: no_invention(events),) if windows else ()
    verdict = judge_history(list(_forgiven(events, windows)), checks)
    records = sum(isinstance(event, Produced) for event in events)
    return StoreVerdict(
        replace(verdict, records=records, stall=longest_stall(events)),
        len(never_delivered(events, allowed)),
        len(came_again(events, allowed)),
    )


def _forgiven(events: Iterable[Event], windows: Sequence[Window]) -> Iterator[Event]:
    """Yield the history, with events confirmed in a window as unconfirmed, and without the observations made in one."""
    for event in events:
        if not _within(event, windows):
            yield event
        elif isinstance(event, Acknowledged):
            yield replace(event, error=event.error or UNKNOWN)
        elif not isinstance(event, Produced | Observed):
            yield event


def _within(event: Event, windows: Sequence[Window]) -> bool:
    """Return whether an event may have happened in a window.

    The response to an acknowledgement may have arrived at any time since it was sent: a consumer gets all results of a
    commit together, once the last leader has responded or timed out.
    """
    begin_ms = event.sent_ms if isinstance(event, Acknowledged) else event.at_ms
    return any(begin_ms <= until and since <= event.at_ms for since, until in windows)


def never_delivered(events: Iterable[Event], of: Iterable[Event]) -> set[Place]:
    """Return the places of `of` that were confirmed to their producer and never delivered."""
    delivered = {place(event) for event in events if isinstance(event, Delivered)}
    return {place(event) for event in of if isinstance(event, Produced)} - delivered


def came_again(events: Iterable[Event], of: Iterable[Event]) -> set[Place]:
    """Return the places whose ACCEPT is in `of` and that were fetched after it had got NONE."""
    accepted: dict[Place, int] = {}
    for event in of:
        if isinstance(event, Acknowledged) and event.type == "ACCEPT" and not event.error:
            accepted.setdefault(place(event), event.at_ms)
    return {
        place(event)
        for event in events
        if isinstance(event, Delivered) and event.fetched_ms > accepted.get(place(event), event.fetched_ms)
    }


def open_on(folder: Path, make_store: MakeStore, min_insync_replicas: int) -> StoreDeployment:
    """Return the services on a store, not yet started."""
    settings = {**SETTINGS, "lease.ms": str(LEASE_MS)}
    return StoreDeployment(folder, TOPOLOGY, settings, make_store, min_insync_replicas)


def require(verdict: StoreVerdict, where: str) -> None:
    """Raises AssertionError with the violations."""
    found: Sequence[str] = verdict.verdict.violations
    assert not found, "\n".join([*found[:20], f"{len(found)} violations; {where}"])
