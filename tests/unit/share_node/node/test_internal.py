"""The addresses of the services between nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kip932.store_settings import STORE_PASSWORD, STORE_SSL_KEY
from shard_runtime.config.process_settings import SSL_KEY, SettingsError, load_settings
from shard_runtime.rpc.server import ListenError
from share_node.node import internal
from share_node.node.internal import (
    external_address,
    internal_address,
    internal_host,
    kafka_address,
    kafka_external_address,
    node_access,
    warn_of_readable_secrets,
)
from share_node.node.process_store import refuse_unusable
from share_node.node.up import UpOptions, _child_arguments, _flags
from tests.support.certificates import node_files


@pytest.mark.rule("CM-80")
@pytest.mark.parametrize(
    ("flags", "host", "reported"),
    [
        ({"listen.host": "10.0.0.1"}, "10.0.0.1", "10.0.0.1:5"),
        ({"listen.host": "0.0.0.0", "advertised.host": "pod"}, "0.0.0.0", "pod:5"),
        ({"listen.host": "0.0.0.0", "advertised.host": "pod", "internal.listen.host": "10.0.0.1"}, "10.0.0.1",
         "10.0.0.1:5"),
        ({"internal.listen.host": "0.0.0.0", "internal.advertised.host": "in"}, "0.0.0.0", "in:5"),
        ({"internal.advertised.port": "9", "listen.host": "h"}, "h", "h:9"),
    ],
)  # fmt: skip
def test_where_nodes_call(flags: dict[str, str], host: str, reported: str) -> None:
    settings = load_settings(flags)
    assert (internal_host(settings), internal_address(settings, 5)) == (host, reported)


@pytest.mark.rule("KL-7")
@pytest.mark.parametrize(
    ("flags", "called"),
    [
        ({}, "127.0.0.1:9092"),
        ({"listen.host": "0.0.0.0", "advertised.host": "pod", "advertised.port": "5"}, "pod:9092"),
        ({"kafka.advertised.address": "kafka-1.example.com:19092"}, "kafka-1.example.com:19092"),
        ({"kafka.advertised.address": "kafka-1"}, "kafka-1:9092"),
        ({"kafka.advertised.address": "[fd00::1]:9"}, "[fd00::1]:9"),
    ],
)
def test_where_kafkas_clients_call(flags: dict[str, str], called: str) -> None:
    assert kafka_address(load_settings(flags), 9_092) == called


@pytest.mark.rule("CM-237")
@pytest.mark.parametrize(
    ("flags", "called", "kafkas"),
    [
        ({"listen.host": "0.0.0.0", "advertised.host": "pod"}, "pod:7", "pod:7"),
        ({"external.advertised.address": "n.example"}, "n.example:7", "n.example:7"),
        ({"external.advertised.address": "n.example:17"}, "n.example:17", "n.example:7"),
        ({"external.advertised.address": "n.example:17", "kafka.external.advertised.address": "k.example:9"},
         "n.example:17", "k.example:9"),
    ],
)  # fmt: skip
def test_where_clients_from_elsewhere_call(flags: dict[str, str], called: str, kafkas: str) -> None:
    settings = load_settings(flags)
    assert (external_address(settings, 7), kafka_external_address(settings, 7)) == (called, kafkas)


@pytest.mark.rule("CM-237")
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"external.listen.port": "7", "listen.port": "7"}, "external.listen.port and listen.port are both 7"),
        ({"kafka.external.listen.port": "7", "external.listen.port": "7"},
         "kafka.external.listen.port and external.listen.port are both 7"),
        ({"health.listen.port": "7", "external.listen.port": "7"}, "health.listen.port and external.listen.port are"),
        ({"external.advertised.address": "0.0.0.0"}, "external.advertised.address is 0.0.0.0"),
        ({"kafka.external.advertised.address": "[::]:9"}, "kafka.external.advertised.address is [::]:9"),
    ],
)  # fmt: skip
def test_external_ports_and_addresses_that_cannot_be_are_refused(flags: dict[str, str], named: str) -> None:
    with pytest.raises(ListenError, match=re.escape(named)):
        internal.refuse_uncallable(load_settings(flags))


@pytest.mark.rule("KL-7")
@pytest.mark.parametrize("text", [":9092", "h:0", "h:65536", "h:x", "a b:1", "http://h:1", "::1", "h:1:2"])
def test_an_address_that_no_client_can_call_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="neither HOST:PORT nor HOST"):
        load_settings({"kafka.advertised.address": text})


@pytest.mark.rule("CM-80", "CM-1", "KL-7")
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"internal.advertised.host": "0.0.0.0"}, "internal.advertised.host is 0.0.0.0"),
        ({"listen.port": "7932", "internal.listen.port": "7932"}, "are both 7932"),
        ({"internal.listen.host": "0.0.0.0", "internal.advertised.host": "h"}, "without TLS"),
        ({"listen.port": "7932", "health.listen.port": "7932"}, "health.listen.port and listen.port are both 7932"),
        ({"kafka.listen.port": "9092", "listen.port": "9092"}, "kafka.listen.port and listen.port are both 9092"),
        ({"kafka.listen.port": "9", "health.listen.port": "9"}, "health.listen.port and kafka.listen.port are both 9"),
        ({"kafka.advertised.address": "0.0.0.0:9092"}, "kafka.advertised.address is 0.0.0.0:9092"),
        ({"metrics.port": "9464", "health.listen.port": "9464"}, "health.listen.port and metrics.port are both 9464"),
    ],
)
def test_what_cannot_be_called_is_refused(flags: dict[str, str], named: str) -> None:
    with pytest.raises(ListenError, match=named):
        refuse_unusable(load_settings({"store.url": "", **flags}))


@pytest.mark.rule("CM-204")
def test_files_with_secrets_that_everyone_can_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal, "readable_by_all", lambda path: f"all read {path}" if "open" in path else "")
    files = {f"ssl.{name}.location": f"/{name}.pem" for name in ("certificate", "ca")}
    settings = load_settings({**files, "ssl.key.location": "/open.key", "store.password.location": "/private"})
    with capture_logs() as lines:
        warn_of_readable_secrets(settings, SSL_KEY, STORE_SSL_KEY, STORE_PASSWORD)
    (line,) = lines
    assert (line["log_level"], line["setting"], line["cause"]) == ("warning", "ssl.key.location", "all read /open.key")
    assert line["try_next"] == "chmod o= /open.key"


@pytest.mark.rule("CM-60")
def test_with_tls_a_node_listens_beyond_loopback_and_bad_certificates_are_refused_first(tmp_path: Path) -> None:
    files = node_files(tmp_path)
    tls = {
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
        "ssl.ca.location": str(files.authorities),
    }
    beyond = {"listen.host": "0.0.0.0", "advertised.host": "node.example", "store.url": ""}
    with pytest.raises(ListenError, match="without TLS would let anyone"):
        refuse_unusable(load_settings(beyond))
    refuse_unusable(load_settings(beyond | tls))
    files.key.write_text("")
    with pytest.raises(ListenError, match="TLS cannot be served"):
        refuse_unusable(load_settings(beyond | tls))


@pytest.mark.rule("CM-80")
def test_up_listens_for_nodes_on_loopback_only_and_each_process_on_a_port_of_its_own(tmp_path: object) -> None:
    options = UpOptions(data=tmp_path, host="0.0.0.0", port=7932, settings={"internal.listen.port": "7933"})  # type: ignore[arg-type]
    flags = _flags(options, tmp_path, "redis://h")  # type: ignore[arg-type]
    assert flags["internal.listen.host"] == "127.0.0.1"
    assert "internal.listen.port=7933" in _child_arguments(flags, "group_coordinator", keeps_port=True)
    assert "internal.listen.port=0" in _child_arguments(flags, "share_coordinator", keeps_port=False)


@pytest.mark.rule("CM-61")
def test_access_control_is_off_unless_it_is_turned_on() -> None:
    assert node_access(load_settings({}, {}), None) is None


@pytest.mark.rule("CM-61")
def test_access_control_says_that_clients_without_certificates_are_all_one() -> None:
    given = {"access.control.enable": "true", "super.users": "User:a;User:b"}
    with capture_logs() as lines:
        access = node_access(load_settings(given, {}), None)
    assert access is not None
    assert access.has_administrator
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("access_control_without_principals", "warning")
    assert "User:ANONYMOUS" in line["effect"]


@pytest.mark.rule("CM-61")
def test_access_control_without_tls_needs_a_port_for_nodes_on_this_machine() -> None:
    given = {"access.control.enable": "true", "internal.listen.host": "10.0.0.1"}
    with pytest.raises(ListenError, match=r"the port for nodes is at .* without TLS"):
        node_access(load_settings(given, {}), None)
