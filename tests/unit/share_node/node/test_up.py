"""The output of `sharegroups up` when it is ready and when it has stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from kip932.store_settings import STORE_FSYNC_ALWAYS, STORE_URL
from shard_runtime.config.kafka_configs import ASSIGNORS, AUTO_OFFSET_RESET, EMPTY_RETENTION_MS
from shard_runtime.config.process_settings import DATA_DIR, KAFKA_LISTEN_PORT, METRICS_PORT, NODE_NAME, load_settings
from shard_runtime.rpc.budget import memory_bytes
from share_node import commands
from share_node.node.up import (
    LEADERS_MAX,
    Ready,
    UpOptions,
    _flags,
    _log_assignor,
    _log_offset_reset,
    _log_retention,
    _store_limit,
    _warn_of_few_processors,
    role_processes,
)
from share_node.node.up import up as run_up
from share_node.store.data_directory import DataDirectory, DataDirectoryError
from share_node.store.embedded_store import EmbeddedStore
from share_node.store.store_limit import StoreLimit
from sharegroups.cli.main import main as tools


@pytest.mark.rule("CM-70")
@pytest.mark.parametrize(
    ("flags", "reason", "said"),
    [
        ((), "", "Stopped; data kept in {data}.\n"),
        (("--store", "redis://h:1"), "", "Stopped; data kept in the store.\n"),
        ((), "the store died", ""),
        (("--output", "json"), "", ""),
    ],
)
def test_stopping_says_where_the_data_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], reason: str, said: str
) -> None:
    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        on_ready(Ready("h:1", str(options.data), "unix:///s", 0, {}, 5))
        return reason

    monkeypatch.setattr(commands, "run_up", up)
    result = CliRunner().invoke(commands.up, ["--data", str(tmp_path), *flags])
    assert result.exit_code == (1 if reason else 0)
    ready, _, after = result.stdout.partition("Press Ctrl-C to stop.\n")
    assert after == said.format(data=tmp_path)
    assert ready.startswith("{" if "json" in flags else "sharegroups is ready at h:1 after 5 ms")
    assert ("The store, for `sharegroups metrics`: unix:///s\n" in ready) is (set(flags) == set())
    assert (f"`sharegroups metrics ingest --up {tmp_path}` finds it.\n" in ready) is (set(flags) == set())
    assert result.stderr == (f"Error: {reason}\n" if reason else "")


@pytest.mark.rule("CT-174")
@pytest.mark.parametrize(
    ("secured", "said"),
    [
        ((False, False), "TLS is off, access control is off: everyone who can connect may do everything.\n"),
        ((True, False), "TLS is on, access control is off: everyone who can connect may do everything.\n"),
        ((True, True), "TLS is on, access control is on.\n"),
    ],
)
def test_it_says_whether_tls_and_access_control_are_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secured: tuple[bool, bool], said: str
) -> None:
    """What a running `up` reports of its settings is in tests/integration/share_node: test_up.py, places.py."""

    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        on_ready(Ready("h:1", str(options.data), "", 0, {}, 5, [], [], None, *secured))
        return ""

    monkeypatch.setattr(commands, "run_up", up)
    assert said in CliRunner().invoke(commands.up, ["--data", str(tmp_path)]).stdout
    found = json.loads(CliRunner().invoke(commands.up, ["--data", str(tmp_path), "--output", "json"]).stdout)
    assert (found["tls"], found["access_control"]) == secured


@pytest.mark.rule("CM-70", "CT-81")
@pytest.mark.parametrize(
    ("flags", "port"), [(("--metrics-port", "9464"), "9464"), (("--set", "metrics.port=9465"), "9465"), ((), None)]
)
def test_where_the_metrics_are_is_said_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], port: str | None
) -> None:
    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        assert options.settings.get(METRICS_PORT.name) == port
        pages = [f"http://127.0.0.1:{port}/metrics"] if port else []
        on_ready(Ready("h:1", str(options.data), "unix:///s", 0, {}, 5, pages))
        return ""

    monkeypatch.setattr(commands, "run_up", up)
    result = CliRunner().invoke(commands.up, ["--data", str(tmp_path), *flags])
    assert result.exit_code == 0
    line = f"Metrics, for Prometheus: http://127.0.0.1:{port}/metrics\n"
    assert (line in result.stdout, "Metrics" in result.stdout) == (port is not None, port is not None)


@pytest.mark.rule("KL-7")
@pytest.mark.parametrize(("flags", "ports"), [(("--kafka-port", "9092"), ["9092", "9093"]), ((), [])])
def test_where_kafkas_clients_connect_is_said_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], ports: list[str]
) -> None:
    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        assert options.settings.get(KAFKA_LISTEN_PORT.name) == (ports[0] if ports else None)
        on_ready(Ready("h:1", str(options.data), "", 0, {}, 5, kafka=[f"127.0.0.1:{port}" for port in ports]))
        return ""

    monkeypatch.setattr(commands, "run_up", up)
    said = CliRunner().invoke(commands.up, ["--data", str(tmp_path), *flags]).stdout
    line = "Kafka's clients, bootstrap.servers: 127.0.0.1:9092,127.0.0.1:9093\n"
    assert (line in said, "Kafka" in said) == (bool(ports), bool(ports))
    found = json.loads(CliRunner().invoke(commands.up, ["--data", str(tmp_path), *flags, "--output", "json"]).stdout)
    assert found["kafka"] == [f"127.0.0.1:{port}" for port in ports]


@pytest.mark.rule("CM-70", "CM-73")
@pytest.mark.parametrize(
    ("store", "fsync", "always"),
    [(None, "always", True), (None, "everysec", False), ("redis://h:1", "always", False)],
)
def test_its_node_keeps_its_name_and_claims_no_more_of_a_store_than_is_known_of_it(
    tmp_path: Path, store: str | None, fsync: str, always: bool
) -> None:
    options = UpOptions(data=tmp_path, host="127.0.0.1", port=0, store=store, fsync=fsync)
    settings = load_settings(_flags(options, tmp_path, store or "unix:///s"))
    assert (settings[NODE_NAME], settings[DATA_DIR]) == ("up", str(tmp_path)), "whatever port it gets"
    assert (settings[STORE_FSYNC_ALWAYS], settings[STORE_URL]) == (always, store or "unix:///s")


@pytest.mark.rule("CM-70")
@pytest.mark.parametrize(("given", "lines"), [({}, 1), ({"group.share.auto.offset.reset": "latest"}, 0)])
def test_groups_begin_at_the_earliest_record_which_is_said_in_one_line(
    tmp_path: Path, given: dict[str, str], lines: int
) -> None:
    options = UpOptions(data=tmp_path, host="127.0.0.1", port=0, settings=given)
    settings = load_settings(_flags(options, tmp_path, "unix:///s"))
    assert settings[AUTO_OFFSET_RESET] == ("earliest" if lines else "latest")
    with capture_logs() as said:
        _log_offset_reset(settings)
    assert len(said) == lines
    assert load_settings({})[AUTO_OFFSET_RESET] == "latest", "in production"


@pytest.mark.rule("GC-46")
@pytest.mark.parametrize(("given", "kept_ms"), [({}, 604_800_000), ({EMPTY_RETENTION_MS.name: "0"}, 0)])
def test_groups_are_kept_for_a_week_without_members_which_is_said_in_one_line(
    tmp_path: Path, given: dict[str, str], kept_ms: int
) -> None:
    options = UpOptions(data=tmp_path, host="127.0.0.1", port=0, settings=given)
    settings = load_settings(_flags(options, tmp_path, "unix:///s"))
    assert settings[EMPTY_RETENTION_MS] == kept_ms
    with capture_logs() as said:
        _log_retention(settings)
    assert [line["hours"] for line in said] == ([168] if kept_ms else [])
    assert load_settings({})[EMPTY_RETENTION_MS] == 0, "for ever, in production"


@pytest.mark.parametrize(("given", "lines"), [({}, 1), ({ASSIGNORS.name: "simple"}, 0)])
def test_a_partition_is_shared_by_several_members_which_is_said_in_one_line(
    tmp_path: Path, given: dict[str, str], lines: int
) -> None:
    options = UpOptions(data=tmp_path, host="127.0.0.1", port=0, settings=given)
    settings = load_settings(_flags(options, tmp_path, "unix:///s"))
    assert settings[ASSIGNORS] == (("shared",) if lines else ("simple",))
    with capture_logs() as said:
        _log_assignor(settings)
    assert [line["value"] for line in said] == ["shared"] * lines
    assert load_settings({})[ASSIGNORS] == ("simple",), "in production"


def test_the_first_of_several_leaders_has_the_name_of_an_only_one() -> None:
    roles = "group_coordinator,share_coordinator,partition_leader"
    assert role_processes(False, 2) == {"up": roles, "up-2": roles}
    by_role = {role: role for role in roles.split(",")}
    assert role_processes(True, 1) == by_role
    assert list(role_processes(True, 3).items()) == [
        *by_role.items(), ("partition_leader-2", "partition_leader"), ("partition_leader-3", "partition_leader")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "leaders"), [((), 1), (("--leaders", "2"), 2), (("--leaders", str(LEADERS_MAX)), 64)]
)
def test_the_number_of_leaders_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], leaders: int
) -> None:
    asked: list[int] = []

    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        asked.append(options.leaders)
        return ""

    monkeypatch.setattr(commands, "run_up", up)
    assert CliRunner().invoke(commands.up, list(flags)).exit_code == 0
    assert asked == [leaders]


@pytest.mark.rule("CT-81")
@pytest.mark.parametrize("leaders", ["0", "-1", "65", "many", "1.5"])
def test_a_number_of_leaders_that_cannot_be_is_refused(leaders: str) -> None:
    result = CliRunner().invoke(commands.up, ["--leaders", leaders])
    assert result.exit_code == 2
    assert "Invalid value for '--leaders': " in result.stderr
    assert leaders in result.stderr


@pytest.mark.parametrize(("leaders", "processors", "lines"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (1, 0, 0)])
def test_more_leaders_than_processors_are_reported_in_one_line(leaders: int, processors: int, lines: int) -> None:
    with capture_logs() as said:
        _warn_of_few_processors(leaders, processors)
    assert [(line["leaders"], line["processors"]) for line in said] == [(leaders, processors)] * lines


@pytest.mark.rule("CM-73")
def test_where_the_servers_are_not_installed_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroups.cli.main._offered", list)
    result = CliRunner().invoke(tools, ["up"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: 'up' needs the servers: ")
    assert "pip install '.[server,cli]'" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.rule("CM-210")
@pytest.mark.parametrize(
    ("words", "given"), [((), None), (("--store-memory", "512MiB"), 512 << 20), (("--store-memory", "0"), 0)]
)
def test_the_memory_limit_of_the_store_is_an_option_and_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], given: int | None
) -> None:
    seen: list[int | None] = []

    async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
        seen.append(options.store_memory)
        on_ready(Ready("h:1", str(options.data), "unix:///s", 0, {}, 5, limit=StoreLimit(3 << 30)))
        return ""

    monkeypatch.setattr(commands, "run_up", up)
    text = CliRunner().invoke(commands.up, ["--data", str(tmp_path), *words])
    assert "The store may use 3.0 GiB of memory; then it refuses writes.\n" in text.stdout
    ready = CliRunner().invoke(commands.up, ["--data", str(tmp_path), "--output", "json", *words])
    assert json.loads(ready.stdout)["store_memory"] == 3 << 30
    assert seen == [given, given]


@pytest.mark.rule("CM-210")
def test_a_size_that_is_none_and_a_limit_for_a_store_of_the_users_are_refused(tmp_path: Path) -> None:
    none = CliRunner().invoke(commands.up, ["--data", str(tmp_path), "--store-memory", "much"])
    assert (none.exit_code, "as 512MiB" in none.stderr) == (2, True)
    own = CliRunner().invoke(commands.up, ["--store", "redis://h:1", "--store-memory", "1GiB"])
    assert own.exit_code == 1
    assert "--store-memory is for the embedded store; set maxmemory in the configuration of yours" in own.stderr


@pytest.mark.rule("CM-210")
def test_without_the_option_the_limit_is_a_share_of_the_memory_here() -> None:
    assert _store_limit(None) == StoreLimit.share_of(memory_bytes())
    assert (_store_limit(0), _store_limit(5)) == (StoreLimit(0), StoreLimit(5))


@pytest.mark.rule("CM-73")
def test_the_directory_is_locked_until_its_store_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise an `up` that starts meanwhile would take the store that is ending for an orphan. Shows the end."""
    taken: list[str] = []

    def take(when: str) -> None:
        lock = DataDirectory(tmp_path).lock("up")
        try:
            lock.acquire("another process")
        except DataDirectoryError:
            return
        taken.append(when)
        lock.release()

    class EndingStore(EmbeddedStore):
        @property
        def url(self) -> str:
            return "unix:///s"

        async def start(self) -> None:
            take("at its start")

        async def stop(self) -> None:
            await asyncio.sleep(0)  # it writes its files
            take("at its end")

    async def serve_nothing(options: UpOptions, *_: object) -> str:
        take("while it serves")
        return ""

    monkeypatch.setattr("share_node.node.up.configure_logs", lambda *_, **__: lambda: None)
    monkeypatch.setattr("share_node.node.up.EmbeddedStore", EndingStore)
    monkeypatch.setattr("share_node.node.up._in_one", serve_nothing)
    options = UpOptions(data=tmp_path, host="127.0.0.1", port=0)
    assert asyncio.run(run_up(options, lambda ready: None, asyncio.Event())) == ""
    take("afterwards")
    assert taken == ["afterwards"]
