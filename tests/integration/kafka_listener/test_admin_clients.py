"""Admin clients of Kafka's, unmodified, at a real node: confluent_kafka's and kafka-python's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition

from sharegroups import Admin
from tests.integration.kafka_listener.share_members import address_of, kafka_cluster
from tests.support.confluent_admin import confluent
from tests.support.kafka_python import KafkaAdminClient
from tests.support.kafka_python import NewTopic as PythonTopic
from tests.support.node import BOUND_S, Cluster, unique


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(node: Cluster) -> Any:
    return confluent.AdminClient({"bootstrap.servers": address_of(node), "log_level": 0})


@pytest.fixture
def topic(admin: Any) -> str:
    """Return a topic of its own, with two partitions."""
    name = unique("t")
    only(admin.create_topics([confluent.NewTopic(name, 2, config={"retention.ms": "12345678"})]))
    return name


def only(futures: Any) -> Any:
    """Return the result of the only item of a call. Raises its error."""
    ((_, future),) = futures.items()
    return future.result(BOUND_S)


def code_of(work: Callable[[], object]) -> int:
    """Return the error code that a call ends with."""
    with pytest.raises(KafkaException) as raised:
        work()
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    code: int = error.code()
    return code


@pytest.mark.rule("KL-43", "KL-57")
def test_a_new_topic_has_its_leaders_at_once(admin: Any) -> None:
    for _ in range(5):
        name = unique("t")
        only(admin.create_topics([confluent.NewTopic(name, 3)]))
        partitions = admin.list_topics(name, BOUND_S).topics[name].partitions
        assert [(each.leader, each.replicas, each.isrs, each.error) for each in partitions.values()] == [
            (1, [1], [1], None)
        ] * 3
        only(admin.create_partitions([confluent.NewPartitions(name, 5)]))
        partitions = admin.list_topics(name, BOUND_S).topics[name].partitions
        assert [each.leader for each in partitions.values()] == [1] * 5


@pytest.mark.rule("KL-57", "KL-58")
def test_topics_that_cannot_be_created_or_deleted(admin: Any, topic: str) -> None:
    assert code_of(lambda: only(admin.create_topics([confluent.NewTopic(topic, 2)]))) == KafkaError.TOPIC_ALREADY_EXISTS
    bad = confluent.NewTopic(unique("t"), 1, config={"no.such": "1"})
    assert code_of(lambda: only(admin.create_topics([bad]))) == KafkaError.INVALID_CONFIG
    placed = confluent.NewTopic(unique("t"), 1, replica_assignment=[[1]])
    assert code_of(lambda: only(admin.create_topics([placed]))) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    assert code_of(lambda: only(admin.create_topics([confluent.NewTopic("a/b", 1)]))) == KafkaError.TOPIC_EXCEPTION
    only(admin.create_topics([confluent.NewTopic(unique("t"), 1)], validate_only=True))
    assert (
        code_of(lambda: only(admin.create_partitions([confluent.NewPartitions(topic, 1)])))
        == KafkaError.INVALID_PARTITIONS
    )
    only(admin.delete_topics([topic]))
    assert code_of(lambda: only(admin.delete_topics([topic]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.rule("KL-61", "KL-62", "KL-44")
def test_the_cluster_and_its_topics_are_described(node: Cluster, admin: Any, topic: str) -> None:
    found = admin.describe_cluster(include_authorized_operations=True).result(BOUND_S)
    assert [(each.id, f"{each.host}:{each.port}") for each in found.nodes] == [(1, address_of(node))]
    assert (found.controller.id, confluent.AclOperation.ALTER in found.authorized_operations) == (1, True)
    described = only(admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert [(each.id, each.leader.id) for each in described.partitions] == [(0, 1), (1, 1)]
    assert confluent.AclOperation.WRITE in described.authorized_operations
    missing = TopicCollection([unique("missing")])
    assert code_of(lambda: only(admin.describe_topics(missing))) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.rule("KL-121")
def test_native_clients_find_the_address_for_kafkas(node: Cluster) -> None:
    with Admin({"bootstrap.servers": node.bootstrap}) as native:
        (found,) = native.describe_cluster().nodes
    assert (f"{found.host}:{found.port}", found.kafka_address) == (node.bootstrap, address_of(node))


@pytest.mark.rule("KL-60")
@pytest.mark.parametrize(
    "kind", [confluent.ResourceType.TOPIC, confluent.ResourceType.GROUP, confluent.ResourceType.BROKER]
)
def test_configs_are_described_and_altered(admin: Any, topic: str, kind: Any) -> None:
    name, config, value, source = {
        confluent.ResourceType.TOPIC: (topic, "retention.ms", "12345678", confluent.ConfigSource.DYNAMIC_TOPIC_CONFIG),
        confluent.ResourceType.GROUP: (
            unique("g"),
            "share.auto.offset.reset",
            "earliest",
            confluent.ConfigSource.GROUP_CONFIG,
        ),
        confluent.ResourceType.BROKER: (
            "1",
            "errors.deadletterqueue.auto.create.topics.enable",
            "true",
            confluent.ConfigSource.DYNAMIC_BROKER_CONFIG,
        ),
    }[kind]
    change = confluent.ConfigEntry(config, value, incremental_operation=confluent.AlterConfigOpType.SET)
    only(admin.incremental_alter_configs([confluent.ConfigResource(kind, name, incremental_configs=[change])]))
    found = only(admin.describe_configs([confluent.ConfigResource(kind, name)]))
    assert (found[config].value, confluent.ConfigSource(found[config].source)) == (value, source)
    change = confluent.ConfigEntry(config, None, incremental_operation=confluent.AlterConfigOpType.DELETE)
    only(admin.incremental_alter_configs([confluent.ConfigResource(kind, name, incremental_configs=[change])]))
    found = only(admin.describe_configs([confluent.ConfigResource(kind, name)]))
    assert confluent.ConfigSource(found[config].source) is not source


@pytest.mark.rule("KL-56", "KL-59")
def test_offsets_and_deleted_records(node: Cluster, admin: Any, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address_of(node), "log_level": 0})
    for number in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=1_000 + number)
    assert producer.flush(BOUND_S) == 0
    partition = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        found: int = only(admin.list_offsets({partition: spec})).offset
        return found

    assert (offset(confluent.OffsetSpec.earliest()), offset(confluent.OffsetSpec.latest())) == (0, 10)
    assert (offset(confluent.OffsetSpec.for_timestamp(1_004)), offset(confluent.OffsetSpec.max_timestamp())) == (4, 9)
    assert only(admin.delete_records([TopicPartition(topic, 0, 6)])).low_watermark == 6
    assert offset(confluent.OffsetSpec.earliest()) == 6
    beyond = [TopicPartition(topic, 0, 99)]
    assert code_of(lambda: only(admin.delete_records(beyond))) == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.rule("KL-63")
def test_entries_of_access_control(admin: Any) -> None:
    user = f"User:{unique('u')}"

    def entry(kind: Any, operation: Any, permission: Any) -> Any:
        return kind(
            confluent.ResourceType.TOPIC, "t", confluent.ResourcePatternType.LITERAL, user, "*", operation, permission
        )

    made = [
        entry(confluent.AclBinding, each, confluent.AclPermissionType.ALLOW)
        for each in (confluent.AclOperation.READ, confluent.AclOperation.WRITE)
    ]
    for future in admin.create_acls(made).values():
        future.result(BOUND_S)
    every = entry(confluent.AclBindingFilter, confluent.AclOperation.ANY, confluent.AclPermissionType.ANY)
    assert sorted(admin.describe_acls(every).result(BOUND_S)) == sorted(made)
    reading = entry(confluent.AclBindingFilter, confluent.AclOperation.READ, confluent.AclPermissionType.ANY)
    assert only(admin.delete_acls([reading])) == made[:1]
    assert admin.describe_acls(every).result(BOUND_S) == made[1:]


@pytest.mark.rule("KL-64")
def test_users_passwords(admin: Any) -> None:
    user, terms = unique("u"), confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_256, 4096)
    only(
        admin.alter_user_scram_credentials(
            [confluent.UserScramCredentialUpsertion(user, terms, b"secret", b"salt" * 4)]
        )
    )
    described = only(admin.describe_user_scram_credentials([user]))
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (confluent.ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    only(
        admin.alter_user_scram_credentials(
            [confluent.UserScramCredentialDeletion(user, confluent.ScramMechanism.SCRAM_SHA_256)]
        )
    )
    assert code_of(lambda: only(admin.describe_user_scram_credentials([user]))) == KafkaError.RESOURCE_NOT_FOUND


@pytest.mark.rule("KL-57", "KL-60", "KL-61")
def test_kafka_pythons_admin_client(node: Cluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address_of(node))
    try:
        name = unique("t")
        (created,) = admin.create_topics([PythonTopic(name=name, num_partitions=2, replication_factor=3)])["topics"]
        assert (created["error_code"], created["num_partitions"], created["replication_factor"]) == (0, 2, 1)
        assert created["configs"]["retention.ms"]["config_source"] == "DEFAULT_CONFIG"
        assert admin.describe_cluster()["controller_id"] == 1
        assert name in admin.list_topics()
        (deleted,) = admin.delete_topics([name])["topics"]
        assert (deleted["name"], deleted["error_code"]) == (name, 0)
    finally:
        admin.close()
