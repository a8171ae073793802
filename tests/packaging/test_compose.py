"""deploy/compose.yaml without Docker: its settings exist, its ports match, and its containers have few rights; and
compose.kafka.yaml, which adds a port for Kafka's clients."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kip932.store_settings import STORE_FSYNC_ALWAYS
from shard_runtime.config.process_settings import (
    ADVERTISED_HOST,
    KAFKA_ADVERTISED_ADDRESS,
    KAFKA_LISTEN_PORT,
    LISTEN_PORT,
    METRICS_PORT,
    NODE_NAME,
    Settings,
    load_settings,
)
from shard_runtime.ownership.placement import ROLES
from sharegroups.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
#: What compose.kafka.yaml adds to them.
KAFKA: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.kafka.yaml").read_text(encoding="utf-8"))["services"]
ROLE_SERVICES = tuple(sorted(role.replace("_", "-") for role in ROLES))


def settings_of(service: str) -> Settings:
    return load_settings(environ=SERVICES[service].get("environment", {}))


def published(services: dict[str, Any]) -> set[int]:
    """Return the published ports of the container that holds the network. They are the same inside and outside, so that
    peers and the host can use the same address for a role."""
    found: set[int] = set()
    for line in services["net"]["ports"]:
        address, outside, inside = line.rsplit(":", 2)
        assert address == "${PUBLISH_ON:-127.0.0.1}"
        assert outside == inside
        first, last = inside.split("-")
        found |= set(range(int(first), int(last) + 1))
    return found


def test_a_process_per_role() -> None:
    for service in ROLE_SERVICES:
        assert SERVICES[service]["command"] == ["python", "-m", "share_node", "serve", service.replace("-", "_")]


def test_every_port_is_published_and_belongs_to_one_role() -> None:
    ports = [settings_of(service)[port] for service in ROLE_SERVICES for port in (LISTEN_PORT, METRICS_PORT)]
    assert len(set(ports)) == len(ports)
    assert set(ports) == published(SERVICES)


def test_kafkas_clients_reach_each_role_that_has_clients_at_a_port_of_its_own() -> None:
    """Compose joins both files: mappings by their names, and lists of ports one after the other."""
    assert {name: sorted(each) for name, each in KAFKA.items()} == {
        "net": ["ports"],
        "group-coordinator": ["environment"],
        "partition-leader": ["environment"],
    }
    ports = {}
    for service in ROLE_SERVICES:
        environment = SERVICES[service]["environment"] | KAFKA.get(service, {}).get("environment", {})
        settings = load_settings(environ=environment)
        assert settings[KAFKA_ADVERTISED_ADDRESS] == ""  # the advertised host, and the port that is listened on
        ports[service] = settings[KAFKA_LISTEN_PORT]
        assert settings_of(service)[KAFKA_LISTEN_PORT] == -1
    assert ports.pop("share-coordinator") == -1
    assert set(ports.values()) == published(KAFKA)
    assert len(set(ports.values())) == len(ports)
    assert not published(KAFKA) & published(SERVICES)


@pytest.mark.rule("CM-1")
def test_every_role_has_a_name_that_outlives_its_container() -> None:
    assert [settings_of(service)[NODE_NAME] for service in ROLE_SERVICES] == list(ROLE_SERVICES)


def test_all_are_reached_at_the_address_of_their_common_network() -> None:
    for service in (*ROLE_SERVICES, "init", "store"):
        assert SERVICES[service]["network_mode"] == "service:net"
    for service in ROLE_SERVICES:
        assert settings_of(service)[ADVERTISED_HOST] == "127.0.0.1"


@pytest.mark.rule("CM-70")
def test_what_the_roles_assume_of_the_store_is_true() -> None:
    words = SERVICES["store"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--bind"] == "127.0.0.1"
    assert (options["--appendonly"], options["--appendfsync"]) == ("yes", "always")
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--maxmemory"] == "768mb"
    assert SERVICES["store"]["mem_limit"] == "1536m", "twice as much: rewriting its file may copy all of it"
    for service in (*ROLE_SERVICES, "init"):
        assert settings_of(service)[STORE_FSYNC_ALWAYS]


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_no_container_may_do_more_than_it_needs(service: str) -> None:
    container = SERVICES[service]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["image"] == "${IMAGE:-sharegroups:dev}"


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_no_container_takes_the_laptops_memory_or_disk(service: str) -> None:
    container = SERVICES[service]
    assert re.fullmatch(r"\d+[mg]", container["mem_limit"])
    assert container["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def test_the_commands_of_its_comment_are_true_as_they_are_written() -> None:
    """A topic must be there before something is produced to it; each command and option exists."""
    text = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    found = [line.partition("#")[0].split() for line in re.findall(r"(?m)^#   .*?(sharegroups (?:[^\n]*))$", text)]
    commands = [words[1:] for words in found if words[1][0] != "-"]
    assert [words[0] for words in commands] == ["topics", "produce", "consume"]
    for words in commands:
        command: click.Command = main
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_context("it", words)
