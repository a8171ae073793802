"""The harness itself: pipes, the board, and a node that is identified by its ready line."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import drain
from benchmarks.machine import Usage, cpu_seconds, process_tree
from benchmarks.processes import BenchmarkError, Board, Crew, Process
from benchmarks.share_group import ShareGroup

TASK = drain.Task(drain.SHAPES["1p1c"], records=10)
READY_NODE = """
import json, signal, sys
print(json.dumps({"bootstrap": "127.0.0.1:1234", "arguments": sys.argv[1:]}), flush=True)
signal.pause()
"""


def test_a_node_is_known_by_its_ready_line_and_stopped_by_sigterm(tmp_path: Path) -> None:
    system = ShareGroup([sys.executable, "-c", READY_NODE])
    try:
        assert system.start_node(TASK, tmp_path) == "127.0.0.1:1234"
        assert list(system.servers) == ["node"]
        pid = system.servers["node"]
        assert cpu_seconds(pid) >= 0
    finally:
        system.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_node_that_ends_is_reported_with_its_error_output(tmp_path: Path) -> None:
    system = ShareGroup([sys.executable, "-c", "import sys; sys.exit('no port is free')"])
    with pytest.raises(BenchmarkError, match=r"(?s)ended with status 1.*no port is free"):
        system.start_node(TASK, tmp_path)
    system.close()


def test_a_line_without_the_expected_key_is_shown() -> None:
    process = Process("talker", [sys.executable, "-c", "print('hello')"])
    with pytest.raises(BenchmarkError, match="said 'hello'; expected a JSON object with the key 'ready'"):
        process.expect("ready", 20)
    process.stop()


def test_a_worker_ends_with_its_input() -> None:
    echo = "import sys; print('{\"heard\": ' + sys.stdin.readline().strip() + '}', flush=True); sys.stdin.readline()"
    process = Process("echo", [sys.executable, "-c", echo])
    process.send(json.dumps("go"))
    assert process.expect("heard", 20) == {"heard": "go"}
    process.stop()


def test_consumers_count_on_one_board(tmp_path: Path) -> None:
    with Board(tmp_path / "board", 2) as parent, Board(tmp_path / "board", 2) as consumer:
        consumer.post(1, records=500, at=12.5, cycles=1)
        assert parent.slots() == [(0.0, 0, 0), (12.5, 1, 500)]
        assert not consumer.is_over
        parent.end()
        assert consumer.is_over


def test_a_process_tree_begins_with_its_root() -> None:
    assert next(iter(process_tree(os.getpid()).values())) == os.getpid()


def test_a_drain_is_shown_in_rates_and_cpu_per_record() -> None:
    produced = drain.Phase(100_000, 2.0, Usage({"server": 1.0}, 2.0, 0.0))
    consumed = drain.Phase(100_000, 0.5, Usage({"server": 0.25, "consumer-0": 0.75}, 0.5, 0.2), cycles=200)
    run = drain.result("sharegroups", drain.Task(drain.SHAPES["4p4c"], records=100_000), produced, consumed)
    assert (run["shape"], run["produce_per_s"], run["consume_per_s"], run["both_per_s"]) == (
        "4p4c",
        50_000,
        200_000,
        40_000,
    )
    assert (run["cycles_per_s"], run["cpu_us_per_record"], run["cpu_both_us_per_record"]) == (400.0, 10.0, 20.0)
    assert run["flagged"]


SAY_READY = 'import json, signal, sys; print(json.dumps({"ready": True}), flush=True); '
LONG_S = 600.0  # far longer than any wait in these tests


@pytest.fixture
def crew() -> Iterator[Callable[..., Process]]:
    """Starts processes of one crew, which print that they are ready, and stops them at the end."""
    started: list[Process] = []
    together = Crew()

    def start(name: str, then: str, is_server: bool = False) -> Process:
        process = Process(name, [sys.executable, "-c", SAY_READY + then], together, is_server)
        started.append(process)
        process.expect("ready", 20)
        return process

    yield start
    for process in started:
        process.stop()


DIE = "sys.stdin.readline(); print('out of luck', file=sys.stderr, flush=True); signal.raise_signal(signal.SIGSEGV)"
LISTEN = "sys.stdin.readline()"


def test_a_server_that_dies_ends_the_wait_for_another_process(crew: Callable[..., Process]) -> None:
    worker = crew("worker", LISTEN)
    server = crew("server", DIE, is_server=True)
    server.send("go")
    with pytest.raises(BenchmarkError, match=rf"(?s)server \(pid {server.pid}\) was ended by SIGSEGV.*out of luck"):
        worker.expect("done", LONG_S)


def test_a_server_that_dies_ends_a_measurement_by_time_and_one_by_the_board(
    crew: Callable[..., Process], tmp_path: Path
) -> None:
    server = crew("server", "sys.stdin.readline()", is_server=True)
    together = Crew()
    together.add(server)
    together.check()
    server.send("go")
    with pytest.raises(BenchmarkError, match=r"server .* ended with status 0"):
        together.rest(LONG_S)
    with Board(tmp_path / "board", 1) as board, pytest.raises(BenchmarkError, match=r"server .* ended with status 0"):
        drain.await_acknowledged(together, board, 10, LONG_S)


def test_a_worker_may_end_in_good_order_but_not_fail(crew: Callable[..., Process]) -> None:
    good, other = crew("good", "pass"), crew("other", LISTEN)
    good.stop()
    with pytest.raises(BenchmarkError, match=r"other .* did not say 'done' within 0\.3 s"):
        other.expect("done", 0.3)
    crew("bad", "sys.exit('lost a record')")
    with pytest.raises(BenchmarkError, match=r"(?s)bad .* ended with status 1.*lost a record"):
        other.expect("done", LONG_S)


def test_a_store_that_its_node_has_lost_is_noticed(crew: Callable[..., Process]) -> None:
    node, store = crew("node", LISTEN, is_server=True), crew("store", LISTEN)
    together = Crew()
    together.add_descendants({"node": node.pid, "store": store.pid}, node)
    together.check()
    store.send("go")
    with pytest.raises(BenchmarkError, match=rf"node .* has lost its store \(pid {store.pid}\)"):
        together.rest(LONG_S)
