"""Clients from elsewhere: two nodes as processes, each with a second port whose answers name nodes otherwise."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_listener.messages.apis import api
from sharegroups import Admin, NewTopic, Producer, ShareConsumer
from tests.support.kafka_client import KafkaClient
from tests.support.node import QUICK, StartedProcess, unique, up_words
from tests.support.ports import free_port

#: Ordinary addresses have this host, external ones the other one; both lead to this machine.
INSIDE, OUTSIDE = "127.0.0.1", "localhost"


class Two:
    """A node with every role, and a partition leader on the same store. Ports by what they are for."""

    def __init__(self) -> None:
        self.ports = [self._ports() for _ in range(2)]
        self.processes: list[StartedProcess] = []

    def start(self, folder: Path) -> None:
        """Start both, and wait until the first one sees the second."""
        inside, other = (str(ports["inside"]) for ports in self.ports)
        self.processes.append(StartedProcess(up_words(folder / "data", self._settings(0), "--port", inside), folder))
        store = json.loads(self.processes[0].first_line())["store"]
        settings = self._settings(1) | {
            "listen.port": other, "node.name": "second", "store.url": store, "store.fsync.always": "true",
        }  # fmt: skip
        words = ["share_node", "serve", "partition_leader", *(f"{name}={text}" for name, text in settings.items())]
        self.processes.append(StartedProcess(words, folder))
        assert self.processes[1].first_line().strip() == f"ready {INSIDE}:{other}"
        with Admin(bootstrap_servers=f"{INSIDE}:{inside}") as admin:
            for _ in range(300):
                if len(admin.describe_cluster().nodes) == 2:
                    return
                time.sleep(0.1)
        raise AssertionError("the first node does not see the second one")

    @staticmethod
    def _ports() -> dict[str, int]:
        return {name: free_port() for name in ("inside", "outside", "kafka", "kafka outside")}

    def _settings(self, number: int) -> dict[str, str]:
        ports = self.ports[number]
        return {
            **QUICK,
            "group.share.auto.offset.reset": "earliest",
            "external.listen.port": str(ports["outside"]),
            "external.advertised.address": OUTSIDE,
            "kafka.listen.port": str(ports["kafka"]),
            "kafka.external.listen.port": str(ports["kafka outside"]),
            "kafka.external.advertised.address": f"{OUTSIDE}:{ports['kafka outside']}",
        }

    def addresses(self, which: str) -> set[str]:
        """Return the addresses of both nodes at one kind of port."""
        host = OUTSIDE if "outside" in which else INSIDE
        return {f"{host}:{ports[which]}" for ports in self.ports}

    def close(self) -> None:
        for process in reversed(self.processes):
            process.stop()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    made = Two()
    try:
        made.start(tmp_path_factory.mktemp("two"))
        yield made
    finally:
        made.close()


@pytest.mark.rule("CM-237")
@pytest.mark.parametrize("which", ["inside", "outside"])
def test_each_port_names_nodes_by_the_address_for_its_callers(two: Two, which: str) -> None:
    with Admin(bootstrap_servers=f"{INSIDE}:{two.ports[0][which]}") as admin:
        nodes = admin.describe_cluster().nodes
    assert {f"{each.host}:{each.port}" for each in nodes} == two.addresses(which)
    assert {each.kafka_address for each in nodes} == two.addresses("kafka" if which == "inside" else "kafka outside")


@pytest.mark.rule("CM-237")
@pytest.mark.parametrize("number", [0, 1])
def test_work_goes_through_external_ports_alone(two: Two, number: int) -> None:
    """Whichever node a client asks first, and though leaders and coordinators are at other nodes: a client that was
    given an ordinary address would work, too, so connections are counted where they come in."""
    topic = unique("jobs")
    bootstrap = f"{INSIDE}:{two.ports[number]['outside']}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 4)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for each in range(40):
            producer.produce(topic, b"%d" % each)
        producer.flush()
        assert _peers_of_this_process(two.ports) <= {"outside"}
    seen: set[bytes] = set()
    with ShareConsumer(bootstrap_servers=bootstrap, group_id=unique("g")) as consumer:
        consumer.subscribe([topic])
        for _ in range(60):
            seen.update(message.value() for message in consumer.poll(timeout=1))
            if len(seen) == 40:
                break
        assert _peers_of_this_process(two.ports) == {"outside"}
    assert len(seen) == 40


def _peers_of_this_process(ports: list[dict[str, int]]) -> set[str]:
    """Return to which kinds of the nodes' ports this process has connections now."""
    kinds = {port: kind for each in ports for kind, port in each.items()}
    mine = {path.readlink().name for path in Path("/proc/self/fd").iterdir() if path.is_symlink() and _is_socket(path)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" in mine and words[3] == "01":
                found.add(kinds.get(int(words[2].rpartition(":")[2], 16), ""))
    return found - {""}


def _is_socket(path: Path) -> bool:
    try:
        return path.readlink().name.startswith("socket:")
    except OSError:
        return False


@pytest.mark.rule("CM-237")
@pytest.mark.parametrize("which", ["kafka", "kafka outside"])
def test_kafkas_clients_get_the_addresses_of_their_port(two: Two, which: str) -> None:
    async def asked() -> tuple[set[str], set[str]]:
        metadata, find = api("Metadata"), api("FindCoordinator")
        async with await KafkaClient.connect(two.ports[1][which]) as client:
            nodes = await client.ask("Metadata", 13, metadata.request(topics=[]))
            request = find.request(key_type=0, coordinator_keys=["g1", "g2"])
            found = await client.ask("FindCoordinator", 6, request)
        return (
            {f"{each.host}:{each.port}" for each in nodes.brokers},
            {f"{each.host}:{each.port}" for each in found.coordinators},
        )

    brokers, coordinators = asyncio.run(asked())
    assert brokers == two.addresses(which)
    assert coordinators <= two.addresses(which)


@pytest.mark.rule("CM-237")
def test_a_port_that_is_taken_and_an_address_that_no_one_can_call_end_the_start(tmp_path: Path) -> None:
    for settings, named in (
        (["external.listen.port=7000", "listen.port=7000"], "external.listen.port and listen.port are both 7000"),
        (["external.listen.port=0", "external.advertised.address=0.0.0.0"], "external.advertised.address is 0.0.0.0"),
        (["kafka.external.advertised.address=0.0.0.0:1"], "kafka.external.advertised.address is 0.0.0.0:1"),
    ):
        process = StartedProcess(["share_node", "serve", "partition_leader", *settings], tmp_path)
        assert process.ended() == 1
        assert named in process.errors
