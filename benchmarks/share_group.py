"""Our side of B1: `python -m share_node up`, and the public asyncio clients in separate processes.

Acknowledgement is implicit: the next poll accepts the records that the previous one returned, and the commit callback
is called when the leader has confirmed it. Group settings are the defaults, except that a new group starts at the
earliest offset.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.drain import BATCH, Task
from benchmarks.machine import arguments, process_tree
from benchmarks.processes import BenchmarkError, Board, Crew, Process, hear, interpreter, run_loop, say, worker
from benchmarks.secure import ACLS, Secured, allow_clients, secured

if TYPE_CHECKING:
    from sharegroups import KafkaError, Message, TopicIdPartition
    from sharegroups.aio import Admin

TOPIC: Final = "bench"
GROUP: Final = "bench"
_START_S: Final = 60.0
_SETTLED_S: Final = 60.0
_TOPICS_MAX: Final = 100
_ADMINS: Final = ("setup", "observer")
_QUIET_S: Final = 0.7  # longer than a fetch waits at the leader (fetch.max.wait.ms)


class ShareGroup:
    """One node with its embedded store, a topic and workers. `command` starts the node; options are appended to it.

    `configs`: the group's configs. `leaders`: how many the command starts; each leads as many partitions as the others,
    or one more. `python`: the interpreter of the clients. `secure`: a mode of `benchmarks.secure`, none by default.
    `kafka`: where the node that was started serves Kafka's clients, if it does.
    """

    name = "sharegroups"
    kafka: Sequence[str] = ()

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "-m", "share_node", "up"),
        *,
        python: str = sys.executable,
        configs: Mapping[str, str] | None = None,
        leaders: int = 1,
        secure: str = "",
    ) -> None:
        self.name = secure or self.name
        self._secure = secure
        self._secured = Secured()
        self._configs = dict(configs or {})
        self.crew = Crew()
        self._leaders = leaders
        self._command = tuple(command)
        self._python = python
        self._node: Process | None = None
        self._workers: list[Process] = []
        self._producer: Process | None = None
        self._consumers: list[Process] = []
        self._servers: dict[str, int] = {}
        self._bootstrap = ""
        self._task: Task | None = None

    def start(self, task: Task, folder: Path, board: Path) -> None:
        """See drain.System."""
        self._task = task
        self.start_node(task, folder)
        shape = task.shape
        self.make_topic(shape.partitions, task.groups)
        produce = {"partitions": shape.partitions, "records": task.produced, "value_bytes": task.value_bytes}
        self._producer = self._worker("producer", produce | {"batch_records": task.batch_records})
        for number in range(shape.consumers):
            group = group_name(number % task.groups)
            consume = {"number": number, "consumers": shape.consumers, "board": str(board), "group": group}
            self._consumers.append(self._consumer(consume | {"fetch_records": task.fetch_records}))

    def _consumer(self, settings: dict[str, Any]) -> Process:
        return self._worker("consumer", settings)

    def start_node(self, task: Task, folder: Path) -> str:
        """Start the node. Returns its bootstrap address. Raises BenchmarkError."""
        options = ["--data", str(folder / "data"), "--port", "0", "--output", "json", "--fsync", task.fsync]
        self._secured = secured(self._secure, folder / "certs")
        words = [*self._command, *options, *self._secured.words]
        self._node = Process(f"{self.name} node", words, self.crew, is_server=True)
        said = self._node.expect("bootstrap", _START_S)
        self._bootstrap = str(said["bootstrap"])
        self.kafka = [str(address) for address in said.get("kafka", ())]
        self._servers = _named(process_tree(self._node.pid))
        self.crew.add_descendants(self._servers, self._node)
        return self._bootstrap

    def make_topic(self, partitions: int, groups: int = 1) -> None:
        """Create the topic, and set the groups' configs. Raises BenchmarkError."""
        made = {"partitions": partitions, "leaders": min(self._leaders, partitions), "groups": groups}
        self._worker("setup", made | {"configs": self._configs, "secure": self._secure}).expect("made", _START_S)

    def await_settled(self, consumers: int, groups: int = 1) -> None:
        """Wait until each group has its share of the members, with their final assignment. Raises BenchmarkError."""
        settings = {"consumers": consumers // groups, "groups": groups}
        self._worker("observer", settings).expect("settled", _SETTLED_S + _START_S)

    def _worker(self, role: str, settings: dict[str, Any], module: str = "share_group") -> Process:
        security = self._secured.admin if role in _ADMINS else self._secured.client
        given = settings | {"bootstrap": self._bootstrap, "security": dict(security)}
        process = worker(f"{self.name} {role}", module, role, given, self.crew, python=self._python)
        self._workers.append(process)
        return process

    @property
    def servers(self) -> dict[str, int]:
        """See drain.System."""
        return self._servers

    @property
    def producer(self) -> Process:
        """See drain.System."""
        assert self._producer is not None
        return self._producer

    @property
    def consumers(self) -> Sequence[Process]:
        """See drain.System."""
        return self._consumers

    def settle(self) -> None:
        """See drain.System."""
        assert self._task is not None
        self.await_settled(self._task.shape.consumers, self._task.groups)

    def settings(self) -> dict[str, Any]:
        """See drain.System."""
        fsync = self._task.fsync if self._task else ""
        transport = "loopback TCP, TLS" if self._secure else "loopback TCP"
        return {"appendonly": "yes", "appendfsync": fsync, "client": "asyncio", "transport": transport}

    def close(self) -> None:
        """See drain.System."""
        for process in self._workers:
            process.stop()
        if self._node is not None:
            self._node.stop(terminate=True)


class Release(ShareGroup):
    """Another release of this suite, with the node and clients that are installed for the interpreter `python`.

    The benchmark's own code is always this release's: it uses only what both releases have.
    """

    name = "before"

    def __init__(self, python: str) -> None:
        super().__init__((*interpreter(python), "-m", "share_node", "up"), python=python)


def _named(tree: dict[str, int]) -> dict[str, int]:
    """Return the node's processes by names that are the same in every run; several of one kind are numbered."""
    found: dict[str, int] = {}
    for number, (name, pid) in enumerate(tree.items()):
        kind = "store" if "valkey" in name or "redis" in name else ("node" if number == 0 else role_of(arguments(pid)))
        found[kind if kind not in found else f"{kind}-{number}"] = pid
    return found


def group_name(number: int) -> str:
    """Return the name of a run's group. Nearly every run has only the first, number 0."""
    return GROUP if number == 0 else f"{GROUP}-{number}"


def role_of(words: Sequence[str]) -> str:
    """Return the role that a process of `up --processes` serves; `helper` for any other process."""
    return words[words.index("serve") + 1] if "serve" in words[:-1] else "helper"


# The workers.


async def _setup(settings: dict[str, Any]) -> None:
    from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic  # noqa: PLC0415 - parents need no client
    from sharegroups.aio import Admin  # noqa: PLC0415

    async with Admin(settings["security"], bootstrap_servers=settings["bootstrap"]) as admin:
        for _ in range(_TOPICS_MAX):
            _raise_first(await admin.create_topics([NewTopic(TOPIC, settings["partitions"])]))
            if await _is_even(admin, settings["leaders"]):
                break
            _raise_first(await admin.delete_topics([TOPIC]))
        else:
            raise BenchmarkError(f"none of {_TOPICS_MAX} topics lay evenly on {settings['leaders']} leaders")
        configs = {"share.auto.offset.reset": "earliest", **settings["configs"]}
        changes = [AlterConfig(name, value) for name, value in configs.items()]
        names = [group_name(number) for number in range(settings["groups"])]
        groups = [ConfigResource.group(name) for name in names]
        _raise_first(await admin.incremental_alter_configs(dict.fromkeys(groups, changes)))
        if settings["secure"] == ACLS:
            await allow_clients(admin, TOPIC, names)
    say(made=True)


async def _is_even(admin: Admin, leaders: int) -> bool:
    """Wait until all partitions of the topic are led, and return whether they are spread evenly over the leaders.

    That depends on the topic's id, and so on chance.
    """
    until = time.monotonic() + _SETTLED_S
    while True:
        led = [part.leader for part in (await admin.list_topics([TOPIC]))[TOPIC].partitions]
        if led and -1 not in led:
            shares = Counter(led).values()
            return len(shares) == leaders and max(shares) - min(shares) <= 1
        if time.monotonic() > until:
            raise BenchmarkError(f"the topic's partitions were led by {led} after {_SETTLED_S:g} s; -1 means no leader")
        await asyncio.sleep(0.02)


def _raise_first(results: dict[Any, Any]) -> None:
    for error in results.values():
        if error is not None:
            raise error


async def _observer(settings: dict[str, Any]) -> None:
    """Wait until every consumer is a member and has its group's current epoch."""
    from sharegroups.aio import Admin  # noqa: PLC0415

    until = time.monotonic() + _SETTLED_S
    async with Admin(settings["security"], bootstrap_servers=settings["bootstrap"]) as admin:
        for number in range(settings["groups"]):
            while True:
                name = group_name(number)
                group: Any = (await admin.describe_share_groups([name]))[name]
                epochs = [] if isinstance(group, Exception) else [member.member_epoch for member in group.members]
                if len(epochs) == settings["consumers"] and set(epochs) == {group.group_epoch}:
                    break
                if time.monotonic() > until:
                    raise BenchmarkError(f"{name} did not settle within {_SETTLED_S:g} s; it is {group!r}")
                await asyncio.sleep(0.1)
    say(settled=True)


async def _produce(settings: dict[str, Any]) -> None:
    from sharegroups.aio import Producer  # noqa: PLC0415

    value, records, partitions = b"v" * settings["value_bytes"], settings["records"], settings["partitions"]
    batch = settings["batch_records"]
    producer = Producer(
        settings["security"],
        bootstrap_servers=settings["bootstrap"],
        batch_num_records=batch,
        batch_size=batch * 2048,
    )
    async with producer:
        await producer.ensure_topic(TOPIC)
        say(ready=True)
        await asyncio.to_thread(hear, "go")
        for number in range(0, records, BATCH):
            for _ in range(min(BATCH, records - number)):
                await producer.produce(TOPIC, value, partition=number // BATCH % partitions)
            await asyncio.sleep(0)  # let the sender run, which is a task of this loop
        waiting = await producer.flush()
        # The records of a failed batch are never acknowledged, so the count falls short and the run fails.
        say(produced=records - waiting, at=time.monotonic())
        await asyncio.to_thread(sys.stdin.readline)


async def _consume(settings: dict[str, Any]) -> None:
    from sharegroups.aio import ShareConsumer  # noqa: PLC0415

    number = settings["number"]
    records = cycles = value_bytes = 0
    fetch = settings["fetch_records"]
    consumer = ShareConsumer(
        settings["security"],
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        max_poll_records=fetch,
        share_acquire_mode="record_limit" if fetch == 1 else "batch_optimized",
    )
    with Board(Path(settings["board"]), settings["consumers"]) as board:

        def committed(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
            nonlocal records
            if error is not None:
                raise error
            records += sum(len(found) for found in offsets.values())
            board.post(number, records, time.monotonic(), cycles)

        consumer.set_acknowledgement_commit_callback(committed)
        consumer.subscribe([TOPIC])
        async with consumer:
            # Poll once to become a member, then keep polling until `hold` arrives, to get new assignments.
            await consumer.poll(0.2)
            say(ready=True)
            hold = asyncio.create_task(asyncio.to_thread(hear, "hold"))
            while not hold.done():
                await consumer.poll(0.2)
            hold.result()
            await asyncio.sleep(_QUIET_S)  # let waiting fetches end: they would acquire records before the gate opens
            say(held=True)
            await asyncio.to_thread(hear, "go")
            while not board.is_over:
                messages = await consumer.poll(0.05)
                value_bytes += _touch(messages)
                cycles += bool(messages)
    say(done=True, value_bytes=value_bytes)


def _touch(messages: Sequence[Message]) -> int:
    return sum([len(message.value()) for message in messages])


_ROLES: Final = {"setup": _setup, "observer": _observer, "producer": _produce, "consumer": _consume}

if __name__ == "__main__":
    run_loop(_ROLES[sys.argv[1]](json.loads(sys.argv[2])))
