"""Unmodified Kafka clients at real nodes: what they are offered, who they are, and several nodes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from kafka_listener.messages.apis import api
from kafka_listener.offers import Offers
from tests.integration.kafka_listener.share_members import ask, kafka_cluster
from tests.support.node import BOUND_S, QUICK, Cluster, unique
from tests.support.ports import free_port

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


@pytest.mark.rule("KL-7", "KL-42")
def test_clients_find_leaders_and_coordinators_of_two_nodes_again_after_one_is_killed() -> None:
    topic = unique("jobs")
    ports = free_port()
    with Cluster(QUICK, "--leaders", "2", "--kafka-port", str(ports)) as nodes:
        servers = address(nodes)
        assert [each.rpartition(":")[2] for each in nodes.ready["kafka"]] == [str(ports), str(ports + 1)]
        client = admin(nodes)  # kept: what it is asked ends with it
        assert client.create_topics([NewTopic(topic, 6)])[topic].result(BOUND_S) is None
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
        stored, failed = set[int](), list[Any]()

        def reported(error: Any, message: Any) -> None:
            if error is None:
                stored.add(int(message.value()))
            else:
                failed.append(error)

        consumers = Consumers(servers, unique("group"), topic, 2)
        try:
            victim = nodes.ready["pids"]["up-2"]
            for number in range(1_500):
                producer.produce(topic, str(number), on_delivery=reported)
                producer.poll(0.002)
                if number == 500:
                    os.kill(victim, signal.SIGKILL)
            assert producer.flush(BOUND_S) == 0
            deadline = time.monotonic() + BOUND_S
            while len(consumers.got) < len(stored):
                assert time.monotonic() < deadline, f"{len(stored) - len(consumers.got)} records did not come"
                time.sleep(0.05)
        finally:
            consumers.stop()
        assert (failed, stored) == ([], set(range(1_500)))
        assert set(consumers.got) == stored
