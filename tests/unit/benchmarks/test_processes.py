"""The harness itself: pipes, the board, and a node that is known by its ready line."""

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks import drain
from benchmarks.machine import Usage, cpu_seconds, process_tree
from benchmarks.processes import BenchmarkError, Board, Process
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


def test_a_node_that_ends_is_told_with_its_error_output(tmp_path: Path) -> None:
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
    process.tell(json.dumps("go"))
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


def test_a_drain_is_told_in_rates_and_cpu_per_record() -> None:
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
