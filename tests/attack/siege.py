"""A cluster of one node per role under attack, with a canary, and with the books: producers and consumers that record
what they do.

`Siege` starts it, runs attacks one after another, restarts nodes that ended, and judges the results at the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sharegroups import Admin, NewTopic
from tests.attack.canary import Canary, Song, song
from tests.attack.definition import Attack, Target
from tests.attack.principals import ADMIN, BOOKS, CANARY, Principals, dial_of, entries
from tests.attack.watch import MIB, Watch, resident_bytes
from tests.chaos.deployment import PARTITION_LEADER, SERVICES, Topology
from tests.chaos.drivers.processes import ProcessesDeployment
from tests.chaos.drivers.processes import deploy as deploy_processes
from tests.chaos.history import HistoryWriter, now_ms, read_history
from tests.chaos.load import Load, LoadOptions
from tests.chaos.runner import RUN_SETTINGS
from tests.chaos.verdict import Verdict, judge_history

ATTACKED: Final = "attacked"
CANARY_TOPIC: Final = "canary"
#: For each partition of the attacked topic: the store must not fill up within the hour.
RETAINED_BYTES: Final = 64 * MIB
#: Bytes of requests and responses that a node may hold (CM-92); small, so that a missing bound soon shows.
BUDGET_BYTES: Final = 96 * MIB
#: Memory of all tail caches of a node: small, so that they fill within minutes and are not the cause of later growth.
CACHES_BYTES: Final = 16 * MIB
#: The maximum wait of an honest client for one call, and of a new client for its first response.
WAIT_MAX_MS: Final = 2_000
#: After half an hour, the maximum ratio of a node's memory in the last third of the time to that in the second third.
GROWTH_MAX: Final = 1.1
JUDGED_AFTER_S: Final = 1800.0
#: The maximum memory of a node: 128 MiB for itself, plus six times the budget, since its bytes are in memory up to
#: three times, the tail caches fill, and the allocator keeps freed memory.
NODE_BYTES_MAX: Final = 128 * MIB + 6 * BUDGET_BYTES
SETTINGS: Final = {
    **RUN_SETTINGS,
    "group.share.record.lock.duration.ms": "10000",
    "rpc.memory.bytes": str(BUDGET_BYTES),
    "log.tail.caches.bytes": str(CACHES_BYTES),
    "log.retention.check.interval.ms": "200",
}


@dataclass(frozen=True, slots=True)
class Struck:
    """The result of one attack: the line that it returned, and the canary's turns from its start until shortly after
    its end.

    `outages`: nodes that did not respond to a new client for longer than in any earlier attack, and for how long, in
    seconds. `memory`: the resident MiB of each node afterwards.
    """

    attack: str
    seconds: float
    saw: str
    canary: Song
    restarted: tuple[str, ...]
    outages: tuple[tuple[str, float], ...]
    memory: tuple[int, ...]

    def __str__(self) -> str:
        restarted = f"; started again: {', '.join(self.restarted)}" if self.restarted else ""
        outages = "".join(f"; no answer from {name} for {outage_s:.1f} s" for name, outage_s in self.outages)
        after = f"{'+'.join(map(str, self.memory))} MiB{restarted}{outages}"
        return f"{self.attack:<28}{self.seconds:6.1f} s  {self.saw}; canary {self.canary}; {after}"


class Siege:
    """A context manager. `books`: whether producers and consumers with a history run too; `tls`: whether nodes require
    certificates and control access (`tests.attack.principals`)."""

    def __init__(self, folder: Path, seed: int, *, books: bool = False, tls: bool = False) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self._seed = seed
        self._stack = ExitStack()
        self._books = books
        self._tls = tls
        self._principals: Principals | None = None
        self._load: Load | None = None
        self.restarts: list[str] = []
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            topology = Topology(leaders=1, share_coordinators=1, group_coordinators=1, store_replicas=0)
            settings = dict(SETTINGS)
            if self._tls:
                self._principals = Principals(self.folder / "certificates")
                settings |= self._principals.node_settings()
            self.deployment: ProcessesDeployment = self._stack.enter_context(
                deploy_processes(self.folder, topology, settings)
            )
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open(self) -> None:
        deployment = self.deployment
        self._clocks = {}
        for name in deployment.names(PARTITION_LEADER):
            deployment.kill(name)
            self._clocks[name] = deployment.wear_clock(name)
            deployment.start(name)
        principals, admin_dial = self._principals, dial_of(self._principals, ADMIN)
        with Admin(admin_dial.settings(deployment.bootstrap)) as admin:
            if principals is not None:
                refused = {acl.text: str(error) for acl, error in admin.create_acls(entries()).items() if error}
                assert not refused, f"entries were not added: {refused}"
            topics = [
                NewTopic(ATTACKED, 4, config={"retention.bytes": str(RETAINED_BYTES)}),
                NewTopic(CANARY_TOPIC, 1),
            ]
            errors = admin.create_topics(topics)
            assert not any(errors.values()), f"topics were not made: {errors}"
            topic_id = _id_of(admin, ATTACKED)
        self.target = Target(
            clients=deployment.addresses, internal=deployment.internal_addresses,
            metrics=deployment.metrics_addresses, topic=ATTACKED, topic_id=topic_id, clocks=self._clocks,
            admin=admin_dial, refused=principals.refused() if principals else {},
        )  # fmt: skip
        if self._books:
            books = dial_of(principals, BOOKS)
            self._load = Load(
                deployment, self.folder, self._seed, "books", LoadOptions(rate=60, security=books.security)
            )
            self._stack.callback(self._load.close)
            self._load.begin()
        self.canary = self._stack.enter_context(
            Canary(deployment.bootstrap, CANARY_TOPIC, self.folder, dial=dial_of(principals, CANARY))
        )
        self.watch = self._stack.enter_context(
            Watch(deployment.addresses, deployment.pids, dial_of(principals, CANARY))
        )

    def strike(self, attack: Attack, seconds: float) -> Struck:
        """Run one attack, then restart nodes that ended, as a supervisor does. Raises the attack's AssertionError."""
        began_ms, began = now_ms(), time.monotonic()
        before = self.watch.longest_outage_s()
        target = replace(self.target, dial=dial_of(self._principals, attack.who))
        saw = attack.run(target, self.rng, seconds, self.folder)
        lasted = time.monotonic() - began
        restarted = self._supervise()
        self._wait_turn(now_ms())
        outages = tuple((name, s) for name, s in self.watch.longest_outage_s().items() if s > before[name])
        memory = tuple(resident_bytes(pid) // MIB for _, pid in sorted(self.deployment.pids().items()))
        return Struck(attack.name, lasted, saw, song(self.canary.turns(began_ms)), restarted, outages, memory)

    def _supervise(self) -> tuple[str, ...]:
        ended = self.deployment.ended()
        for name in ended:
            self.restarts.append(name)
            self.deployment.start(name)
        return ended

    def _wait_turn(self, since_ms: int) -> None:
        """Wait until the canary has completed a turn that started after the attack; later turns belong to the next
        attack."""
        deadline = time.monotonic() + 60
        while not self.canary.turns(since_ms):
            assert time.monotonic() < deadline, "the canary had no turn for 60 s after an attack"
            time.sleep(0.05)

    def besiege(self, attacks: Sequence[Attack], seconds: float, say: Callable[[str], None]) -> int:
        """Run random attacks until the time is up; return how many."""
        count, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.report(self.rng.choice(attacks), self.rng.uniform(2, 8), say)
            count += 1
        return count

    def report(self, attack: Attack, seconds: float, say: Callable[[str], None]) -> None:
        """Run an attack and print its result; a wrong response is added to `wrong`, and the run continues."""
        try:
            say(str(self.strike(attack, seconds)))
        except AssertionError as error:
            self.wrong.append(f"{attack.name}: {error}")
            say(f"{attack.name:<28}WRONG: {error}")
            self._supervise()

    def judge(self) -> Verdict:
        """Drain the books and judge them; they must not be read before. Only with `books`.

        The watch is stopped first: judging an hour of records keeps this process busy for most of a minute, and a new
        client that waited for the judge was once mistaken for one that waited for a node.
        """
        assert self._load is not None, "without books there is nothing to judge"
        self.watch.stop()
        HistoryWriter(self.folder / "faults.jsonl").close()
        self._load.finish()
        books = [path for path in sorted(self.folder.glob("*.jsonl")) if path.stem != "canary"]
        return judge_history(read_history(books))

    def waits(self) -> list[str]:
        """Return the clients that waited too long or in vain: the canary for a call, a new client for its first
        response.

        Separate from `harm`, whose bounds hold on a busy machine too.
        """
        found, sung = [], song(self.canary.turns())
        if sung.failed:
            found.append(f"{sung.failed} turns of the canary failed: {', '.join(sung.errors)}")
        if sung.worst_wait_ms > WAIT_MAX_MS:
            found.append(f"the canary waited {sung.worst_wait_ms} ms for one call; at most {WAIT_MAX_MS} ms")
        for name, outage in self.watch.longest_outage_s().items():
            if outage * 1000 > WAIT_MAX_MS:
                found.append(f"a newcomer waited {outage:.1f} s for {name}; at most {WAIT_MAX_MS} ms")
        return found

    def memory(self) -> str:
        """Return whether the nodes' memory is flat: "flat", "grows", or "unjudged" before half an hour has passed."""
        if self.watch.watched_s() <= JUDGED_AFTER_S:
            return "unjudged"
        nodes = (name for role in SERVICES for name in self.deployment.names(role))
        return "grows" if any(self.watch.growth(name) > GROWTH_MAX for name in nodes) else "flat"

    def harm(self) -> list[str]:
        """Return the attacks' effects on whole nodes: unreachable for 10 s, memory over the maximum, or growing
        memory."""
        found = [
            f"{name} was not reached for {outage:.1f} s; at most 10 s"
            for name, outage in self.watch.longest_outage_s().items()
            if outage > 10
        ]
        for name in (name for role in SERVICES for name in self.deployment.names(role)):
            if (peak := self.watch.peak_bytes(name)) > NODE_BYTES_MAX:
                found.append(f"{name} took {peak // MIB} MiB; at most {NODE_BYTES_MAX // MIB} MiB")
            if self.watch.watched_s() > JUDGED_AFTER_S and (growth := self.watch.growth(name)) > GROWTH_MAX:
                found.append(f"{name} keeps {growth:.2f} times what it kept in the second third; at most {GROWTH_MAX}")
        return found


def _id_of(admin: Admin, topic: str) -> bytes:
    """Return the id of a new topic, once the queried node knows it: another node may have created it."""
    deadline = time.monotonic() + 60
    while (found := admin.list_topics([topic])[topic]).error is not None:
        assert time.monotonic() < deadline, f"topic {topic!r} is not known after 60 s: {found.error}"
        time.sleep(0.05)
    return found.topic_id
