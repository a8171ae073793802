"""Settings: their sources, and the advice given when a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip932.setting import boolean, duration_ms, integer, string, table
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import LEASE_MS, LISTEN_PORT, NODE_ROLES, SettingsError, load_settings


def test_flags_win_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'listen.port = 1\nlease.ms = 4000\nnode.roles = ["partition_leader"]\n[group.share]\nmax.size = 100\n'
    )
    environ = {"SHAREGROUPS_LISTEN_PORT": "2", "SHAREGROUPS_LEASE_MS": "5000", "SHAREGROUPS_CONFIG": str(file)}
    settings = load_settings({"listen.port": "3"}, environ)
    assert settings[LISTEN_PORT] == 3
    assert settings[LEASE_MS] == 5_000
    assert settings[NODE_ROLES] == ("partition_leader",)
    assert settings[kafka_configs.GROUP_MAX_SIZE] == 100
    assert settings[kafka_configs.DELIVERY_COUNT_LIMIT] == 5
    assert settings.given("listen.port")
    assert not settings.given("node.name")
    assert settings.text("node.roles") == "partition_leader"


@pytest.mark.parametrize(
    ("flags", "environ", "says"),
    [
        ({"listen.prot": "1"}, {}, "Unknown setting: listen.prot. Did you mean 'listen.port'?"),
        ({"retention.ms": "1"}, {}, "`sharegroups configs alter --topic NAME --add-config retention.ms=VALUE`."),
        (
            {"share.isolation.level": "1"},
            {},
            "Unknown setting: share.isolation.level. It is a config of one group: `sharegroups configs alter",
        ),
        ({"share.auto.offset.reset": "1"}, {}, "; the default of all is group.share.auto.offset.reset."),
        ({"foo": "1"}, {}, "Unknown setting: foo. All settings are listed in docs/reference/settings.md."),
        ({}, {"SHAREGROUPS_LEASEMS": "1"}, "SHAREGROUPS_LEASEMS. Did you mean 'SHAREGROUPS_LEASE_MS'?"),
        ({"listen.port": "x"}, {}, "Invalid value 'x' for listen.port: it is not a whole number (from flag)"),
        ({"listen.port": "70000"}, {}, "it must be at most 65535"),
        ({"node.roles": "leader"}, {}, "'leader' is none of group_coordinator, partition_leader, share_coordinator"),
        ({"allow.plaintext": "1"}, {}, "it must be true or false"),
        ({"lease.renew.interval.ms": "2000"}, {}, "lease.renew.interval.ms=2000 must be at most half of lease.ms=3000"),
    ],
)
def test_what_cannot_be_is_refused_by_name(flags: dict[str, str], environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags, environ)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "name", ["shard.replays.max", "shard.queue.max", "log.lost.tail.jump.offsets", "rpc.concurrent.calls.max"]
)
def test_a_number_without_which_nothing_goes_on_may_be_one_and_not_none(name: str) -> None:
    settings = load_settings({name: "1"})
    assert settings.text(name) == "1"
    with pytest.raises(SettingsError, match=f"Invalid value '0' for {name}: it must be at least 1"):
        load_settings({name: "0"})


def test_the_variable_of_the_command_line_is_nobodys_setting_here() -> None:
    settings = load_settings({}, {"SHAREGROUPS_BOOTSTRAP": "127.0.0.1:7932"})
    assert "SHAREGROUPS_BOOTSTRAP" not in {setting.environment for setting in settings.declared.values()}


def test_all_faults_are_reported_at_once_and_so_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[lease]\nmillis = 1\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({"listen.port": "x", "nonsense": "1"}, file=file)
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(file=tmp_path / "missing.toml")
    file.write_text("= 1")
    with pytest.raises(SettingsError, match="is not TOML"):
        load_settings(file=file)


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"ssl.certificate.location": "c"}, "missing: ssl.key.location, ssl.ca.location"),
        ({"ssl.certificate.location": "c", "ssl.key.location": "k"}, "missing: ssl.ca.location"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth=required needs TLS: set ssl.certificate.location"),
        ({"ssl.client.auth": "requested"}, "none"),
    ],
)
def test_tls_is_set_as_a_whole(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    assert says in str(caught.value)


@pytest.mark.rule("GC-140", "GC-141", "GC-142", "GC-143", "PL-1001")
@pytest.mark.scenario("S-130")
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"group.share.record.lock.duration.ms": "10000"}, "group.share.min.record.lock.duration.ms=15000"),
        (
            {"group.share.record.lock.duration.ms": "60000", "group.share.max.record.lock.duration.ms": "50000"},
            "group.share.max.record.lock.duration.ms=50000",
        ),
        ({"group.share.delivery.count.limit": "1"}, "group.share.delivery.count.limit: it must be at least 2"),
        ({"group.share.delivery.count.limit": "11"}, "group.share.delivery.count.limit: it must be at most 10"),
        ({"group.share.partition.max.record.locks": "50"}, "it must be at least 100"),
        ({"group.share.partition.max.record.locks": "20000"}, "it must be at most 10000"),
        (
            {"group.share.max.size": "1000", "group.share.max.share.sessions": "999"},
            "must be at least group.share.max.size",
        ),
        ({"group.share.session.timeout.ms": "70000"}, "group.share.max.session.timeout.ms=60000"),
        ({"group.share.session.timeout.ms": "44999"}, "group.share.min.session.timeout.ms=45000"),
        ({"group.share.heartbeat.interval.ms": "4999"}, "group.share.min.heartbeat.interval.ms=5000"),
        ({"group.share.heartbeat.interval.ms": "15001"}, "group.share.max.heartbeat.interval.ms=15000"),
        (
            {"group.share.min.assignment.interval.ms": "1001"},
            "group.share.min.assignment.interval.ms=1001",
        ),
        ({"group.share.assignment.interval.ms": "15001"}, "group.share.max.assignment.interval.ms=15000"),
        (
            {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
            "group.share.min.delivery.count.limit=3",
        ),
        (
            {"group.share.delivery.count.limit": "9", "group.share.max.delivery.count.limit": "8"},
            "group.share.max.delivery.count.limit=8",
        ),
        (
            {"group.share.partition.max.record.locks": "100", "group.share.min.partition.max.record.locks": "101"},
            "group.share.min.partition.max.record.locks=101",
        ),
        ({"group.share.partition.max.record.locks": "4001"}, "group.share.max.partition.max.record.locks=4000"),
        ({"group.share.assignors": "simple,simple"}, "exactly one assignor"),
        (
            {
                "group.share.heartbeat.interval.ms": "45000",
                "group.share.max.heartbeat.interval.ms": "50000",
            },
            "group.share.heartbeat.interval.ms=45000 must be less than group.share.session.timeout.ms=45000",
        ),
    ],
)
def test_server_bounds_refuse_the_start(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    assert says in str(caught.value)


@pytest.mark.rule("SR-29")
def test_history_is_kept_for_ten_minutes_and_readers_may_be_thirty_minutes_behind() -> None:
    settings = load_settings({})
    assert (settings["shard.history.ms"], settings["shard.readers.max.lag.ms"]) == (600_000, 1_800_000)


def test_a_service_declares_settings_of_its_own() -> None:
    mine = integer("leader.cache.bytes", 10, "A cache.", low=1)
    settings = load_settings({"leader.cache.bytes": "20"}, extra=[table([mine])])
    assert settings[mine] == 20
    with pytest.raises(ValueError, match="declared twice"):
        table([mine, mine])


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT10S", 10_000), ("P1DT2H3M4.5S", 93_784_500), ("PT-6H", -21_600_000), ("-PT1S", -1_000), ("PT0S", 0)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "10S", "P1Y", "PT1", "P1DT"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="ISO-8601"):
        duration_ms(text)


def test_every_declared_default_lies_in_its_own_range() -> None:
    for group in (kafka_configs.BROKER_CONFIGS, kafka_configs.GROUP_CONFIGS, kafka_configs.TOPIC_CONFIGS):
        for name, setting in group.items():
            assert setting.name == name
            assert setting.value(setting.text(setting.default)) == setting.default  # type: ignore[arg-type]
            assert setting.doc.endswith(".")


def test_a_setting_can_be_changed_while_the_process_runs_only_if_it_says_so() -> None:
    assert not integer("a", 1, "A.").dynamic
    assert not boolean("b", True, "B.").dynamic
    assert not string("c", "", "C.").dynamic
    assert string("c", "", "C.", dynamic=True).dynamic
