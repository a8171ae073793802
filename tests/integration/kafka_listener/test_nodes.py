"""Unmodified Kafka clients at real nodes: what they are offered, who they are, and several nodes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kafka_listener.messages.apis import api
from kafka_listener.offers import Offers
from tests.integration.kafka_listener.share_members import ask, kafka_cluster
from tests.integration.kafka_listener.two_nodes import Disturb, check_disturbed, kill, stand_still, two_nodes
from tests.support.node import BOUND_S, Cluster, unique

QUIET: Final = {"log_level": 0}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD: Final = "a password"


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


def address(cluster: Cluster) -> str:
    return ",".join(cluster.ready["kafka"])


def admin(cluster: Cluster, **settings: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": address(cluster), **QUIET, **settings})


@pytest.mark.rule("KL-10", "KL-7")
def test_clients_learn_versions_and_brokers(node: Cluster) -> None:
    brokers = admin(node).list_topics(timeout=BOUND_S).brokers
    assert [(broker.id, f"{broker.host}:{broker.port}") for broker in brokers.values()] == [(1, address(node))]
    named = api("ApiVersions").request(client_software_name="test", client_software_version="1")
    offered = {each.api_key for each in ask(node, "ApiVersions", 4, named).api_keys}
    assert offered == {*Offers().handlers, api("SaslHandshake").key, api("SaslAuthenticate").key}


@pytest.mark.rule("KL-21", "KL-20")
@pytest.mark.asyncio
async def test_a_user_made_by_kafkas_client_gives_its_password_by_each_mechanism(node: Cluster) -> None:
    user = unique("user")
    client = admin(node)  # kept: what it is asked ends with it
    made = client.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4_096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
    )
    assert made[user].result(BOUND_S) is None
    for mechanism in MECHANISMS:
        sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user}
        assert admin(node, **sasl, **{"sasl.password": PASSWORD}).list_topics(timeout=BOUND_S).brokers
        with pytest.raises(KafkaException):
            admin(node, **sasl, **{"sasl.password": "wrong"}).list_topics(timeout=1)
        producer = AIOKafkaProducer(
            bootstrap_servers=address(node),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        await producer.stop()


class Consumers:
    """Members of a group, each in a thread, that count what they are given by value until `stop`."""

    def __init__(self, servers: str, group: str, topic: str, count: int) -> None:
        self.got: Counter[int] = Counter()
        self._settings = {"bootstrap.servers": servers, "group.id": group, **QUIET}
        self._topic = topic
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._consume) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _consume(self) -> None:
        consumer = ShareConsumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            self.got.update(int(each.value() or b"-1") for each in consumer.poll(0.2) if each.error() is None)
        consumer.close()

    def stop(self) -> None:
        """End them."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(BOUND_S)


class Sent:
    """An idempotent producer of confluent_kafka."""

    def __init__(self, servers: str, topic: str) -> None:
        self.stored: set[int] = set()
        self.failed: list[Any] = []
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
        self._topic = topic

    def send(self, numbers: range) -> None:
        """Send records with these values."""
        for number in numbers:
            self._producer.produce(self._topic, str(number), on_delivery=self._reported)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until each is confirmed or failed."""
        assert self._producer.flush(2 * BOUND_S) == 0

    def _reported(self, error: Any, message: Any) -> None:
        if error is None:
            self.stored.add(int(message.value()))
        else:
            self.failed.append(error)


@pytest.mark.rule("KL-7", "KL-42")
@pytest.mark.parametrize("disturb", [kill, stand_still])
def test_clients_find_leaders_and_coordinators_of_two_nodes_again(disturb: Disturb) -> None:
    with two_nodes() as nodes:
        consumers = Consumers(nodes.servers, unique("group"), nodes.topic, 2)
        check_disturbed(nodes, Sent(nodes.servers, nodes.topic), consumers, disturb)
