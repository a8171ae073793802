"""The programs of docs/howto/kafka-clients.md, as they are on the page, each in a process of its own at a real node."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sharegroups import Admin, NewTopic, TopicPartition
from sharegroups.admin_values import ShareGroupOffset
from tests.integration.kafka_listener.share_members import address_of, kafka_cluster
from tests.support.node import BOUND_S, Cluster

PAGE: Final = (Path(__file__).parents[3] / "docs/howto/kafka-clients.md").read_text(encoding="utf-8")
PROGRAMS: Final = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
_ADDRESS: Final = "127.0.0.1:9092"
_ORDERS: Final = [f"order {number}" for number in range(10)]


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster(**{"group.share.auto.offset.reset": "earliest"}) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 2)]) == {"orders": None}
        yield cluster


def run(node: Cluster, uses: str, folder: Path) -> list[str]:
    """Run the page's only program that uses this word; return the lines of its output."""
    (program,) = (each for each in PROGRAMS if uses in each)
    path = folder / "program.py"
    path.write_text(program.replace(_ADDRESS, address_of(node)), encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def finished(node: Cluster, group: str) -> int:
    """Return up to where the group has finished the topic, summed over its partitions."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        found = admin.list_share_group_offsets({group: None})[group]
    assert isinstance(found, dict), found
    total = 0
    for number in range(2):
        offset = found[TopicPartition("orders", number)]
        assert isinstance(offset, ShareGroupOffset), offset
        total += offset.start_offset
    return total


@pytest.fixture(scope="module")
def produced(node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Run the page's first program; return what it says."""
    return run(node, "confluent_kafka import Producer", tmp_path_factory.mktemp("producer"))


def test_every_program_of_the_page_is_run_here() -> None:
    assert len(PROGRAMS) == 5
    assert all(program.count(_ADDRESS) >= 1 for program in PROGRAMS)


def test_the_producer_of_confluent_kafka(produced: list[str]) -> None:
    assert sorted(produced) == [f"stored {order}" for order in _ORDERS]


def test_the_implicit_share_consumer_of_confluent_kafka(node: Cluster, produced: list[str], tmp_path: Path) -> None:
    *lines, last = run(node, '"group.id": "workers"', tmp_path)
    assert sorted(line.split(" ", 1)[1] for line in lines) == [f"{order} delivery 1" for order in _ORDERS]
    assert last == "not accepted: []"
    assert finished(node, "workers") == len(produced)


def test_the_explicit_share_consumer_of_confluent_kafka(node: Cluster, produced: list[str], tmp_path: Path) -> None:
    expected = [f"{order} delivery 1 ACCEPT" for order in _ORDERS]
    expected[3], expected[5] = "order 3 delivery 1 REJECT", "order 5 delivery 1 RELEASE"
    assert sorted(run(node, '"group.id": "bank"', tmp_path)) == sorted([*expected, "order 5 delivery 2 ACCEPT"])
    assert finished(node, "bank") == len(produced)


@pytest.mark.usefixtures("produced")
@pytest.mark.parametrize(("client", "said"), [("kafka", "from kafka-python"), ("aiokafka", "from aiokafka")])
def test_kafka_python_and_aiokafka_produce_and_read(node: Cluster, client: str, said: str, tmp_path: Path) -> None:
    assert run(node, f"from {client} import ", tmp_path) == [said]
