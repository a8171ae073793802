"""`sharegroups scaler` for a running cluster, called over gRPC as KEDA's operator does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from kip932.ids import RESOURCE_GROUP
from kip932.keda import external_scaler_pb2 as keda
from share_node.certs import Authority
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from tests.support.certificates import node_files
from tests.support.node import TERMINATED, Cluster, StartedProcess, unique
from tests.support.ports import free_port


class Asked:
    """KEDA's end of the connection. The names of the service and methods are literals, since KEDA has them compiled
    in."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)])

    def call(self, name: str, request: Any, response: Any) -> Any:
        method = self.channel.unary_unary(
            f"/externalscaler.ExternalScaler/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return method(request, timeout=30)

    def active(self, **metadata: str) -> bool:
        return bool(self.call("IsActive", ref(metadata), keda.IsActiveResponse).result)

    def value(self, name: str, **metadata: str) -> float:
        request = keda.GetMetricsRequest(scaled_object_ref=ref(metadata), metric_name=name)
        (found,) = self.call("GetMetrics", request, keda.GetMetricsResponse).metric_values
        assert found.metric_name == name
        assert found.metric_value >= found.metric_value_float
        return float(found.metric_value_float)


def ref(metadata: dict[str, str]) -> keda.ScaledObjectRef:
    return keda.ScaledObjectRef(name="workers", namespace="shop", scaler_metadata=metadata)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"group.share.auto.offset.reset": "earliest"}) as running:
        yield running


def started(folder: Path, bootstrap: str, settings: Mapping[str, str] | None = None) -> tuple[StartedProcess, Asked]:
    environ = {"SHAREGROUPS_LISTEN_PORT": str(free_port()), "SHAREGROUPS_LOG_LEVEL": "error", **(settings or {})}
    process = StartedProcess(["share_node", "scaler", "--bootstrap-server", bootstrap], folder, environ)
    word, _, address = process.first_line().strip().partition(" ")
    assert word == "ready"
    return process, Asked(address)


@pytest.fixture(scope="module")
def asked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    process, found = started(tmp_path_factory.mktemp("scaler"), cluster.bootstrap)
    yield found
    found.channel.close()
    assert process.stop() == TERMINATED


def topic_with(cluster: Cluster, values: list[str]) -> str:
    topic = unique("orders")
    settings = {"bootstrap.servers": cluster.bootstrap}
    with Admin(settings) as admin:
        assert admin.create_topics([topic]) == {topic: None}
    with Producer(settings) as producer:
        for value in values:
            producer.produce(topic, value)
    return topic


def consume(cluster: Cluster, topic: str, group: str, records: int) -> None:
    with ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "max.poll.records": records}
    ) as consumer:
        consumer.subscribe([topic])
        left = records
        until = time.monotonic() + 60
        while left > 0:
            assert time.monotonic() < until
            left -= len(list(consumer.poll(timeout=1)))
        consumer.commit_sync()


def test_lag_and_age_of_a_group_fall_to_nothing_as_it_works(cluster: Cluster, asked: Asked) -> None:
    topic, group = topic_with(cluster, [str(number) for number in range(20)]), unique("workers")
    trigger = {"group": group, "topics": topic, "lagTarget": "5", "ageTargetSeconds": "1"}
    # Active although the group has no member yet: otherwise the first worker would never start.
    assert asked.active(**trigger)
    assert asked.value("lag", **trigger) == 20
    assert asked.value("age-seconds", **trigger) > 0
    consume(cluster, topic, group, 20)
    assert asked.value("lag", **trigger) == 0
    assert asked.value("age-seconds", **trigger) == 0
    assert not asked.active(**trigger)


def delayed(cluster: Cluster, topic: str, group: str, *delays: float) -> None:
    """Let a member release the first records with these delays, and leave."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        taken, until = 0, time.monotonic() + 60
        while taken < len(delays):
            assert time.monotonic() < until
            for message in consumer.poll(timeout=1):
                consumer.acknowledge(message, AcknowledgeType.RELEASE, delay=delays[message.offset()])
                taken += 1
            consumer.commit_sync()


@pytest.mark.rule("PL-938", "GC-109")
def test_a_delayed_record_needs_no_worker_until_its_delay_ends(cluster: Cluster, asked: Asked) -> None:
    """Without this rule, a record delayed by an hour kept the workers running for that hour."""
    topic, group = topic_with(cluster, ["hour", "seconds"]), unique("workers")
    trigger = {"group": group, "topics": topic, "lagTarget": "5", "ageTargetSeconds": "1"}
    delayed(cluster, topic, group, 3_600, 5)
    until = time.monotonic() + 60
    while asked.value("lag", **trigger) != 1:
        assert time.monotonic() < until, "the record whose delay has ended wakes the first worker"
        time.sleep(0.1)
    assert asked.active(**trigger)
    consume(cluster, topic, group, 1)
    assert asked.value("lag", **trigger) == 0
    assert asked.value("age-seconds", **trigger) == 0
    assert not asked.active(**trigger)


@pytest.mark.rule("CM-105", "GC-109")
def test_deleted_records_need_no_worker_and_hide_none(cluster: Cluster, asked: Asked) -> None:
    """Without this rule, deleted records, including delayed ones, counted until a member joined."""
    topic, group = topic_with(cluster, ["a", "b", "c"]), unique("workers")
    trigger = {"group": group, "topics": topic, "lagTarget": "5"}
    delayed(cluster, topic, group, 3_600, 3_600, 3_600)
    settings = {"bootstrap.servers": cluster.bootstrap}
    with Admin(settings) as admin:
        place, until = TopicPartition(topic, 0), time.monotonic() + 60
        while admin.explain_record(group, place, 0).loaded:
            assert time.monotonic() < until, "the share-partition of a group without members was not unloaded"
            time.sleep(0.1)
        admin.delete_records({place: 3})
    assert not asked.active(**trigger)
    with Producer(settings) as producer:
        producer.produce(topic, "d")
    assert asked.value("lag", **trigger) == 1


class AbortedError(Exception):
    """Raised to abort a transaction."""


@pytest.mark.rule("PL-827", "GC-109")
def test_an_aborted_tail_needs_no_worker_and_hides_none(cluster: Cluster, asked: Asked) -> None:
    """Without this rule, the tail counted until a member joined; so did records of an open transaction, which no member
    gets."""
    topic, group = topic_with(cluster, ["a"]), unique("workers")
    trigger = {"group": group, "topics": topic, "lagTarget": "5"}
    settings = {"bootstrap.servers": cluster.bootstrap}
    with Admin(settings) as admin:
        resource = ConfigResource(RESOURCE_GROUP, group)
        level = {resource: [AlterConfig("share.isolation.level", "read_committed")]}
        assert admin.incremental_alter_configs(level) == {resource: None}
        consume(cluster, topic, group, 1)
        place = TopicPartition(topic, 0)
        with Producer({**settings, "transactional.id": unique("tx")}) as producer:
            for loaded in (True, False):
                with suppress(AbortedError), producer.transaction():
                    for number in range(20):
                        producer.produce(topic, str(number))
                    producer.flush()
                    assert asked.value("lag", **trigger) == 0, "no member gets it before it is committed"
                    raise AbortedError
                until_value(asked, 0, trigger)
                assert not asked.active(**trigger)
                until = time.monotonic() + 60
                while loaded and admin.explain_record(group, place, 0).loaded:
                    assert time.monotonic() < until, "the share-partition of a group without members was not unloaded"
                    time.sleep(0.1)
            with producer.transaction():
                producer.produce(topic, "b")
        until_value(asked, 1, trigger)
        consume(cluster, topic, group, 1)
        assert asked.value("lag", **trigger) == 0
        fresh = {**trigger, "group": unique("workers")}
        assert asked.value("lag", **fresh) > 2, "by default a group reads what was aborted, too"


def until_value(asked: Asked, lag: int, trigger: dict[str, str]) -> None:
    """Wait until the lag has this value; the marker may arrive some moments after the transaction was decided."""
    until = time.monotonic() + 60
    while asked.value("lag", **trigger) != lag:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_group_that_never_was_has_no_work_unless_topics_are_named(asked: Asked) -> None:
    assert not asked.active(group=unique("unknown"), lagTarget="5")


def test_targets_are_what_the_trigger_says(asked: Asked) -> None:
    request = ref({"group": "g", "lagTarget": "2.5", "ageTargetSeconds": "30", "scalerAddress": "scaler:7932"})
    specs = asked.call("GetMetricSpec", request, keda.GetMetricSpecResponse).metric_specs
    assert [(spec.metric_name, spec.target_size, spec.target_size_float) for spec in specs] == [
        ("lag", 3, 2.5),
        ("age-seconds", 30, 30.0),
    ]


def test_a_trigger_that_makes_no_sense_is_refused_with_its_name(asked: Asked) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        asked.active(group="g")
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "ScaledObject shop/workers: trigger metadata has no target" in str(refused.value.details())
    with pytest.raises(grpc.RpcError) as unknown:
        asked.value("depth", group="g", lagTarget="1")
    assert "metric 'depth' is none of lag" in str(unknown.value.details())


def test_streams_are_not_served(asked: Asked) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        asked.call("StreamIsActive", ref({}), keda.IsActiveResponse)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_cluster_that_is_not_there_is_no_reason_to_scale_to_nothing(tmp_path: Path) -> None:
    process, no_one = started(tmp_path, f"127.0.0.1:{free_port()}")
    try:
        with pytest.raises(grpc.RpcError) as refused:
            no_one.active(group="g", lagTarget="1")
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "the backlog of group 'g' cannot be read" in str(refused.value.details())
    finally:
        no_one.channel.close()
        assert process.stop() == TERMINATED


@pytest.mark.rule("CM-61")
def test_a_scaler_without_rights_gets_them_named_and_scales_nothing(tmp_path: Path) -> None:
    with Cluster({"access.control.enable": "true", "super.users": "User:root"}) as guarded:
        process, powerless = started(tmp_path, guarded.bootstrap)
        try:
            for trigger in ({"group": "g", "lagTarget": "1"}, {"group": "g", "topics": "t", "ageTargetSeconds": "1"}):
                with pytest.raises(grpc.RpcError) as refused:
                    powerless.active(**trigger)
                assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
                assert "User:ANONYMOUS" in str(refused.value.details())
        finally:
            powerless.channel.close()
            assert process.stop() == TERMINATED


@pytest.mark.rule("CM-60")
def test_a_scaler_that_has_certificates_serves_tls(cluster: Cluster, tmp_path: Path) -> None:
    authority = Authority.made()
    files = node_files(tmp_path, authority)
    paths = {"CERTIFICATE": files.certificate, "KEY": files.key, "CA": files.authorities}
    settings = {f"SHAREGROUPS_SSL_{name}_LOCATION": str(path) for name, path in paths.items()}
    process, plain = started(tmp_path, cluster.bootstrap, settings)
    try:
        with pytest.raises(grpc.RpcError):
            plain.active(group="g", lagTarget="1")
        with grpc.secure_channel(plain.address, grpc.ssl_channel_credentials(authority.certificate)) as channel:
            grpc.channel_ready_future(channel).result(20)
    finally:
        plain.channel.close()
        assert process.stop() == TERMINATED
