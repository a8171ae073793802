"""What the tests with Kafka's Java clients share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.kafka_listener.java.kafka_java import JavaProcess, KafkaJava, MissingError, kafka_java
from tests.integration.kafka_listener.share_members import kafka_cluster
from tests.support.node import Cluster
from tools.kafka_transcripts.running import KafkaTools


@pytest.fixture(scope="session")
def java() -> KafkaJava:
    try:
        return kafka_java()
    except MissingError as error:
        pytest.skip(f"needs Java and Maven: {error}")


@pytest.fixture(scope="session")
def tools(java: KafkaJava) -> KafkaTools:
    return KafkaTools(java.jars)


@pytest.fixture(scope="module")
def process(java: KafkaJava) -> Iterator[JavaProcess]:
    with JavaProcess(java) as process:
        yield process


@pytest.fixture(scope="module")
def node(java: KafkaJava) -> Iterator[Cluster]:
    """A node with access control, where each caller is a super user. It is not started where Java is missing."""
    assert java.jars.is_dir()
    settings = {"group.share.auto.offset.reset": "earliest", "access.control.enable": "true"}
    with kafka_cluster(**settings, **{"super.users": "User:ANONYMOUS"}) as cluster:
        yield cluster
