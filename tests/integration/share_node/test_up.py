"""`sharegroups up` as users run it: the output of its processes, and where it may be started."""

import json
import os
import re
import resource
import select
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from kip932.ids import topic_id_text
from shard_runtime.rpc.server import READINESS
from share_node.commands import state
from share_node.node.process import FILES_MAX
from share_node.node.serve import FIRST_SCREEN_S
from sharegroups import Admin, Producer, ShareConsumer
from tests.support.node import BOUND_S, TERMINATED, StartedProcess, up_words
from tests.support.ports import free_port

#: This process's environment without settings.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SHAREGROUPS_")}


@pytest.mark.rule("CM-70")
def test_the_log_level_reaches_every_process(tmp_path: Path) -> None:
    """Nothing below a warning is logged; and the command line's own variable is not a setting of the services."""
    words = up_words(tmp_path / "data", None, "--processes")  # with --log-level warning
    node = StartedProcess(words, tmp_path, {"SHAREGROUPS_BOOTSTRAP": "127.0.0.1:7932"})
    node.first_line()
    assert node.stop() == TERMINATED
    assert node.errors == ""


@pytest.mark.rule("CT-170")
@pytest.mark.parametrize("extra", [(), ("--processes",)])
def test_the_first_screen_is_the_banner_and_the_log_follows(tmp_path: Path, extra: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", "from sharegroups.cli import run; run()", "up", "--port", "0", *extra]
    words += ["--data", str(tmp_path / "data"), "--set", "log.format=console"]
    ours, theirs = os.openpty()
    process = subprocess.Popen(words, stdout=theirs, stderr=theirs, env=ENVIRONMENT)
    os.close(theirs)
    screen = ""
    try:
        while "node_listening" not in screen:
            assert select.select([ours], [], [], BOUND_S)[0], screen
            screen += os.read(ours, 65_536).decode()
    finally:
        process.terminate()
        assert process.wait(BOUND_S) == TERMINATED
        os.close(ours)
    lines = screen.splitlines()
    banner = next(place for place, line in enumerate(lines) if line.startswith("sharegroups is ready at "))
    waited_ms = int(lines[banner].split(" after ")[1].split()[0])
    if waited_ms < FIRST_SCREEN_S * 1_000:  # otherwise the log explains the wait
        assert banner == 0, screen
    assert any(line.startswith("Press Ctrl-C") for line in lines[banner + 3 : banner + 7])
    assert "TLS is off, access control is off: everyone who can connect may do everything." in lines
    assert "INFO production_default_overridden effect=" in screen
    assert "\x1b" not in screen


@pytest.mark.rule("CT-170")
def test_an_error_of_the_start_is_shown_with_what_was_logged_before(tmp_path: Path) -> None:
    words = ["up", "--port", "0", "--data", str(tmp_path / "data"), "--set", "log.format=console"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words[2] = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-c", "from sharegroups.cli import run; run()", *words],
            capture_output=True, text=True, timeout=BOUND_S, env=ENVIRONMENT, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    *before, last = done.stderr.splitlines()
    assert last.startswith("Error: ")
    assert any("production_default_overridden" in line for line in before)


@pytest.mark.rule("CM-203")
def test_every_process_may_have_as_many_files_open_as_the_hard_limit_allows(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        node = StartedProcess(up_words(tmp_path / "data", None, "--processes"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        pids = json.loads(node.first_line())["pids"].values()
        assert len({node.pid, *pids}) == 4
        for pid in {node.pid, *pids}:
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        assert node.stop() == TERMINATED


@pytest.mark.rule("CT-81")
def test_every_process_serves_its_metrics_and_its_health(tmp_path: Path) -> None:
    first = _free_ports(8)
    ports = {"health.listen.port": str(first + 4)}
    flags = ("--processes", "--leaders", "2", "--metrics-port", str(first))
    node = StartedProcess(up_words(tmp_path / "data", ports, *flags), tmp_path)
    try:
        pages = json.loads(node.first_line())["metrics"]
        assert pages == [f"http://127.0.0.1:{port}/metrics" for port in range(first, first + 4)]
        for page in pages:
            with urllib.request.urlopen(page, timeout=20) as answer:
                assert b"sharegroups_shards" in answer.read()
        for port in range(first + 4, first + 8):
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                health: Any = health_pb2_grpc.HealthStub(channel)
                answered = health.Check(health_pb2.HealthCheckRequest(service=READINESS), timeout=20)
                assert answered.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        assert node.stop() == TERMINATED


@pytest.mark.rule("CM-73")
def test_up_on_a_copy_waits_for_the_end_of_the_originals_entry(tmp_path: Path) -> None:
    """The copied store holds the original's node name for one more lease; the original keeps renewing its own entry."""
    lease = {"lease.ms": "8000"}  # longer than it takes to start
    original = StartedProcess(up_words(tmp_path / "original", lease), tmp_path)
    try:
        bootstrap = json.loads(original.first_line())["bootstrap"]
        with Admin(bootstrap_servers=bootstrap) as admin:
            assert not any(admin.create_topics(["made-before"]).values())
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        copy = StartedProcess(up_words(tmp_path / "copy", lease), tmp_path)
        try:
            with Admin(bootstrap_servers=json.loads(copy.first_line())["bootstrap"]) as admin:
                assert admin.list_topics(["made-before"])["made-before"].error is None
            assert '"waits_for": "node name"' in copy.errors
        finally:
            assert copy.stop() == TERMINATED
        with Admin(bootstrap_servers=bootstrap) as admin:
            assert admin.list_topics(["made-before"])["made-before"].error is None
    finally:
        assert original.stop() == TERMINATED


def _free_ports(count: int) -> int:
    """Return the first of `count` free ports in a row."""
    for _ in range(100):
        first = free_port()
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return first
    raise AssertionError(f"no {count} free ports in a row")


@pytest.mark.rule("CM-16")
def test_topic_ids_are_dumped_as_they_are_described(tmp_path: Path) -> None:
    node = StartedProcess(up_words(tmp_path / "data"), tmp_path)
    try:
        bootstrap = json.loads(node.first_line())["bootstrap"]
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics(["t"])
            topic_id = topic_id_text(admin.list_topics(["t"])["t"].topic_id)
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.produce("t", "a")
        with ShareConsumer(bootstrap_servers=bootstrap, group_id="g") as consumer:
            consumer.subscribe(["t"])
            assert consumer.poll(30)
        words = ["dump", "--data", str(tmp_path / "data"), "--kind", "gc", "--shard"]
        dumped = "".join(CliRunner().invoke(state, [*words, str(shard)]).stdout for shard in range(50))
        assert f'"topic_id": "{topic_id}"' in dumped
        assert set(re.findall(r'"topic_id": "([^"]*)"', dumped)) == {topic_id}
    finally:
        node.stop()


@pytest.mark.rule("CM-16")
def test_the_state_of_a_running_node_is_dumped(tmp_path: Path) -> None:
    node = StartedProcess(up_words(tmp_path / "data"), tmp_path)
    try:
        node.first_line()
        words = ["dump", "--data", str(tmp_path / "data"), "--kind"]
        claimed = CliRunner().invoke(state, [*words, "gc", "--shard", "7"])
        assert json.loads(claimed.stdout.splitlines()[0])["type"] == "C"
        absent = CliRunner().invoke(state, [*words, "gc", "--shard", "4711"])
        assert (absent.exit_code, absent.stdout, absent.stderr) == (0, "", "Nothing is stored in {gc:4711}:log.\n")
    finally:
        node.stop()


@pytest.mark.rule("CM-16")
@pytest.mark.parametrize(("kind", "shard"), [("gc", "x"), ("sgs", "orders:0"), ("tp", "7"), ("tp", "orders:0")])
def test_a_name_that_no_shard_has_is_refused(kind: str, shard: str) -> None:
    result = CliRunner().invoke(state, ["dump", "--store", "redis://127.0.0.1:1", "--kind", kind, "--shard", shard])
    assert result.exit_code != 0
    assert f"--shard is '{shard}'; expected " in result.stderr
