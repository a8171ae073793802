"""The same seed gives the same history byte for byte, in any process and whatever ran before."""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import random
import re
import secrets
import subprocess
import sys
import time
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.simulation import determinism
from tests.simulation.clock import WALL_START_MS, Life, SimLoop, living
from tests.simulation.simulate import simulate

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS = (3, 11, 26, 24)  # the last two: old connections, and rights that are taken
PLAY = "import sys; from tests.simulation.simulate import simulate; print(simulate(int(sys.argv[1])).history.text())"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_history_again_in_the_same_process(seed: int) -> None:
    first = simulate(seed).history.text()
    simulate(seed + 1_000)
    assert simulate(seed).history.text() == first
    assert len(first.splitlines()) > 200


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    texts = []
    for junk in ("", "x" * 10_000):  # a different environment moves every address
        environment = {**os.environ, "PYTHONHASHSEED": "0", "JUNK": junk}
        done = subprocess.run(
            [sys.executable, "-c", PLAY, str(SEEDS[0])],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) > 200


def test_other_seeds_give_other_histories() -> None:
    assert len({simulate(seed).history.text() for seed in SEEDS}) == len(SEEDS)


async def _drawn() -> tuple[object, ...]:
    random.shuffle(numbers := list(range(9)))
    return (
        uuid.uuid4(),
        os.urandom(4),
        secrets.token_bytes(4),
        secrets.randbits(63),
        random.random(),
        random.Random().random(),
        random.SystemRandom().random(),
        tuple(numbers),
    )


def test_every_source_of_chance_is_seeded() -> None:
    assert determinism.run(7, _drawn) == determinism.run(7, _drawn)
    assert determinism.run(7, _drawn) != determinism.run(8, _drawn)


def test_chance_is_real_again_after_a_run() -> None:
    state = random.getstate()
    determinism.run(7, _drawn)
    assert random.getstate() == state
    assert os.urandom(8) != os.urandom(8)
    assert uuid.uuid4() != uuid.uuid4()
    assert random.Random().random() != random.Random().random()


def test_clocks_show_virtual_time() -> None:
    async def main() -> list[float]:
        await asyncio.sleep(3_600)
        return [time.monotonic(), time.perf_counter(), time.monotonic_ns() / 1e9, time.time() - WALL_START_MS / 1_000]

    assert determinism.run(1, main) == pytest.approx([3_600] * 4)
    assert time.time() > 1e9


def test_tasks_and_futures_are_walked_in_sets_by_their_age() -> None:
    async def main() -> list[int]:
        futures = [asyncio.get_running_loop().create_future() for _ in range(50)]
        order = {id(future): number for number, future in enumerate(futures)}
        return [order[id(future)] for future in set(futures)]

    assert determinism.run(1, main) == determinism.run(1, main)


def test_nothing_of_a_paused_life_runs_and_all_of_it_later_in_its_order() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        life = Life(loop, "p", 1)
        said: list[str] = []

        async def work(seconds: float) -> None:
            await asyncio.sleep(seconds)
            said.append("task")

        with living(life):
            tasks = [loop.create_task(work(1.5)), loop.create_task(work(9))]
            for seconds in (2, 1, 7):
                loop.call_later(seconds, said.append, f"after {seconds} s")
        await asyncio.sleep(0.5)
        life.pause()
        await asyncio.sleep(5)
        assert said == []
        life.resume()
        assert said == [], "it goes on in its turn"
        await asyncio.gather(*tasks)
        assert loop.time() == 9
        return said

    # A task that was sleeping continues one step after its timer.
    assert determinism.run(1, main) == ["after 1 s", "after 2 s", "task", "after 7 s", "task"]


def test_nothing_of_a_dead_life_ever_runs_not_even_its_clean_up() -> None:
    said: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            said.append("worked")
        finally:
            said.append("cleaned up")
            await asyncio.sleep(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        life = Life(loop, "p", 1)
        with living(life):
            assert not loop.create_task(work()).done()
        await asyncio.sleep(0.5)
        life.die()
        await asyncio.sleep(5)
        gc.collect()
        assert said == []

    determinism.run(1, main)


def test_a_run_collects_what_the_one_before_still_held_at_its_end() -> None:
    class Held:
        async def main(self) -> None:
            self.me = self

    held = Held()
    gone = weakref.ref(held)
    determinism.run(1, held.main)
    del held
    determinism.run(2, Held().main)
    assert gone() is None


def test_a_loop_that_spins_without_time_going_on_is_ended() -> None:
    async def main() -> None:
        for _ in range(10**9):
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="time does not advance"):
        determinism.run(1, main)


def test_a_loop_that_would_wait_for_ever_is_ended() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="wait for ever"):
        determinism.run(1, main)


def test_errors_in_logs_and_callbacks_are_complaints_and_lesser_lines_are_not() -> None:
    def fail() -> None:
        raise ValueError("in a callback")

    async def main() -> list[str]:
        log = structlog.get_logger()
        log.warning("a warning")
        log.error("broken", shard="x")
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)
        return determinism.scribe().complaints

    lines: list[str] = []
    logged, raised = determinism.run(1, main, lines)
    assert "broken" in logged
    assert "in a callback" in raised
    assert [line.split(maxsplit=2)[2] for line in lines] == ["warning: a warning ", "error: broken shard='x'"]


# ---- code that would break it

#: Packages whose code runs in the simulator; the rest of `share_node` starts and ends real processes.
PACKAGES = (
    "protos/kip932",
    "client/sharegroups/aio",
    "client/sharegroups/connection",
    "client/sharegroups/consuming",
    "client/sharegroups/producing",
    "client/sharegroups/administration",
    "services/shard_runtime",
    "services/partition_leader",
    "services/share_coordinator",
    "services/group_coordinator",
)
FILES = (
    "services/share_node/node/roles.py",
    "services/share_node/node/process.py",
    "services/share_node/node/views.py",
)
#: Names imported from these modules would escape the seeding, which replaces them in their modules.
SOURCES = {"time", "uuid", "os", "secrets", "random", "datetime"}
#: A class whose seeding is replaced, and names that neither draw random bits nor show the time.
HARMLESS = {"Random", "path", "PathLike", "environ"}
#: Calls that escape from the loop and its time.
ESCAPES = {"to_thread", "run_in_executor", "Thread", "ThreadPoolExecutor"}
#: Calls that no run of the simulator reaches, and why.
BEYOND = {
    "services/shard_runtime/rpc/binding.py:run_in_executor": "gRPC's requests of many fields; a run has no gRPC",
    "services/shard_runtime/rpc/certificates.py:UTC, datetime": "certificates' ends; a run has no TLS",
    "services/shard_runtime/rpc/certificates.py:to_thread": "certificates are read again; a run has no TLS",
    "services/shard_runtime/rpc/passwords.py:run_in_executor": "passwords are checked; a run has no logins",
    "services/shard_runtime/rpc/token_sources.py:to_thread": "tokens' keys are read again; a run has no logins",
    "services/shard_runtime/rpc/tokens.py:UTC, datetime": "tokens' ends; a run has no logins",
    "client/sharegroups/connection/token_function.py:Thread": "the application's function; a run has no logins",
    "client/sharegroups/administration/user_admin.py:to_thread": "new passwords are salted; a run has no users",
    "services/shard_runtime/metrics/loop_time.py:time.pthread_getcpuclockid": "the thread's own time, read for metrics",
    "protos/kip932/certificate_times.py:UTC, datetime": "certificates' ends; a run has no TLS",
    "client/sharegroups/connection/security.py:UTC, datetime": "certificates' ends; a run has no TLS",
    "protos/kip932/log_lines.py:UTC, datetime": "writes a time that it is given",
    "protos/kip932/metrics_page.py:to_thread": "the port for metrics, which is not opened",
    "services/partition_leader/topic_rpc/produce.py:run_in_executor": "batches too large to be checked in one step",
    "services/partition_leader/topic_rpc/produce_batches.py:time.sleep": "in that thread",
    "services/partition_leader/dead_letters/preparing.py:run_in_executor": "source batches too large for one step",
    "services/partition_leader/topic_log/reader.py:run_in_executor": "look-ups by time in batches that are large",
}
#: Uses of `id` that only distinguish objects and never order them: file, and text of the line.
IDS = {"services/shard_runtime/record_log/redis/writer.py": "id(held): held"}

#: A module-level counter, empty container or random source.
KEPT = re.compile(r"= (itertools\.)?(count\(|(dict|list|set|deque|defaultdict)\(|Random\(|\{\}$|\[\]$)")
#: Containers that always stay empty; `core` shares them where it has nothing to store.
EMPTY = {"services/partition_leader/share_partition/core/batch.py"}
#: State that only a real process keeps; no run sets it.
OWN = {
    "protos/kip932/rpc/grpc_transport.py": "which process opened a channel first; a run opens none",
    "client/sharegroups/connection/waits.py": "what commands say they wait for; a run has no commands, and reads none",
}


def sources() -> Iterator[tuple[str, ast.AST, str]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    for path in (*paths, *(ROOT / name for name in FILES)):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            text = path.read_text()
            yield str(path.relative_to(ROOT)), ast.parse(text), text


def escaping(node: ast.AST) -> str:
    """Return what in this syntax node would escape from the simulator, "" if nothing."""
    if isinstance(node, ast.ImportFrom) and node.module in SOURCES:
        return ", ".join(sorted({alias.name for alias in node.names} - HARMLESS))
    if isinstance(node, ast.Import) and any(alias.name == "datetime" for alias in node.names):
        return "datetime"
    if isinstance(node, ast.Attribute) and node.attr in ESCAPES:
        return node.attr
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
        return "" if node.attr in KNOWN_CLOCKS else f"time.{node.attr}"
    return ""


#: The clocks that `determinism.seeded` replaces in `time`, and constants.
KNOWN_CLOCKS = {
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "clock_gettime",
    "clock_gettime_ns",
    "CLOCK_MONOTONIC",
    "CLOCK_BOOTTIME",
}


def test_no_code_of_a_run_escapes_virtual_time_and_seeded_chance() -> None:
    found = [
        f"{name}:{getattr(node, 'lineno', 0)} {what}"
        for name, tree, _ in sources()
        for node in ast.walk(tree)
        if (what := escaping(node)) and f"{name}:{what}" not in BEYOND
    ]
    assert not found


def test_no_code_of_a_run_keeps_anything_in_its_modules() -> None:
    """All processes in a simulated world, and all runs in an interpreter, share modules."""
    found = []
    for name, tree, text in sources():
        assert isinstance(tree, ast.Module)
        kept = [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
        made = [
            node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and name not in {*EMPTY, *OWN}
        ]
        lines = text.splitlines()
        found += [f"{name}:{node.lineno} global" for node in kept if name not in OWN]
        found += [f"{name}:{node.lineno}" for node in made if KEPT.search(lines[node.lineno - 1])]
    assert not found


def test_no_code_of_a_run_orders_objects_by_their_address() -> None:
    found = []
    for name, tree, text in sources():
        lines = text.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            line = lines[node.lineno - 1].strip()
            if node.func.id in {"id", "hash"} and IDS.get(name, "\0") not in line:
                found.append(f"{name}:{node.lineno} {line}")
    assert not found
