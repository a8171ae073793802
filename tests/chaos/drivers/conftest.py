"""A small running cluster for each driver, shared by the tests in a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups import Admin, NewTopic, Producer
from tests.chaos.deployment import Deployment, Topology, Unsupported, open_deployment
from tests.chaos.experiment import SETTINGS
from tests.chaos.load import wait_for
from tests.chaos.ownership import Ownership

WAIT_S = 60.0
SMALL = Topology(leaders=2, share_coordinators=1, group_coordinators=1, store_replicas=1)


class World:
    """A running deployment, with clients in this process."""

    def __init__(self, deployment: Deployment, folder: Path, stack: ExitStack) -> None:
        self.deployment = stack.enter_context(deployment)
        self.folder = folder
        self._admin = stack.enter_context(
            Admin({"bootstrap.servers": deployment.outside, "default.api.timeout.ms": 20_000})
        )
        self._owners = Ownership(deployment)
        stack.callback(self._owners.close)

    def topic(self, name: str) -> str:
        """Create a topic of one partition and wait for its leader; return the leader's name."""
        assert self._admin.create_topics([NewTopic(name, 1)]) == {name: None}
        return self.leader(name)

    def leader(self, topic: str) -> str:
        """Return the name of its current leader."""
        return self._owners.leader(topic, 0)

    def until_led_by_another(self, topic: str, than: str) -> str:
        """Wait until a node names another leader, and return its name. A node that is cut off may still name the old
        one."""
        seen: list[str] = []

        def another() -> bool:
            seen.append(self.leader(topic))
            return seen[-1] != than

        wait_for(another, f"leader of {topic} other than {than}", WAIT_S)
        return seen[-1]

    def produce(self, topic: str, count: int) -> None:
        """Store records, and wait until each is confirmed."""
        answers: list[KafkaError | None] = []
        with Producer({"bootstrap.servers": self.deployment.outside, "request.timeout.ms": 3_000}) as producer:
            for number in range(count):
                value = f"{topic}-{number}".encode()
                producer.produce(topic, value, partition=0, on_delivery=lambda error, _: answers.append(error))
            assert producer.flush(WAIT_S) == 0
        assert answers == [None] * count

    def end(self, topic: str) -> int:
        """Return its end offset once a leader responds: after a fault the partition may be about to move."""
        place, answers = TopicPartition(topic, 0), list[int]()

        def answered() -> bool:
            answer = self._admin.list_offsets([place])[place]
            answers.extend([answer] if isinstance(answer, int) else [])
            return bool(answers)

        wait_for(answered, f"end offset of {topic}", WAIT_S)
        return answers[-1]


@pytest.fixture(scope="module")
def run_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], World]]:
    """Starts a driver's small cluster, or skips with the reason; the cluster ends with the module."""
    with ExitStack() as stack:

        def run(driver: str) -> World:
            folder = tmp_path_factory.mktemp(driver)
            try:
                deployment = open_deployment(driver, folder, SMALL, SETTINGS)
            except Unsupported as reason:
                pytest.skip(str(reason))
            return World(deployment, folder, stack)

        yield run
