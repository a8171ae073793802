"""Prometheus at a node's metrics port, and misuse of the port by other clients: real sockets, a real node."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kip932.http_endpoint import CONNECTIONS_MAX, HttpEndpoint
from kip932.ids import topic_id_text
from kip932.metrics_page import metrics_pages
from sharegroups import Admin, NewTopic, Producer, ShareConsumer
from tests.support.node import BOUND_S, QUICK, Cluster, unique
from tests.support.ports import free_port
from tests.unit.share_metrics.test_monitoring import OF_NODES

MONITORING = Path(__file__).parents[3] / "deploy" / "kubernetes" / "components" / "monitoring"
#: Metrics of Kubernetes and of Prometheus itself, which no process of ours serves.
OUTSIDE = re.compile(r"(up|kube_\w+|kubelet_\w+|container_\w+|redis_\w+)$")
#: A metric's name; a function's name is followed by a bracket.
NAME = re.compile(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()")
WORDS = frozenset({"and", "or", "unless", "bool", "offset"})


def scrape(port: int, path: str = "/metrics", timeout: float = 30) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
        return text


def series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples by name and labels; a duplicate is an error, as it is for Prometheus."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def metric_names(expression: str) -> set[str]:
    """Return the names of the metrics in a PromQL expression."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    return set(NAME.findall(bare)) - WORDS


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Cluster, int]]:
    port = free_port()
    with Cluster({**QUICK, "metrics.port": str(port)}) as cluster:
        yield cluster, port


def alerts() -> dict[str, set[str]]:
    """Return the metrics of each alert in the nodes' rules; the history's alerts are tested with the pipeline."""
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))
    return {rule["alert"]: metric_names(rule["expr"]) for group in rules["spec"]["groups"] for rule in group["rules"]}


def test_every_alert_checks_what_a_real_node_serves(node: tuple[Cluster, int]) -> None:
    text = scrape(node[1])
    families = {family.name for family in text_string_to_metric_families(text)}  # some have no series yet
    served = {name for name, _ in series(text)} | families
    asked = alerts()
    assert asked["ShareGroupsShardFailed"] == {"num_partitions"}
    assert all(asked.values())
    missing = {alert: {name for name in names if not OUTSIDE.match(name)} - served for alert, names in asked.items()}
    assert {alert: names for alert, names in missing.items() if names} == {}
    assert served >= {name.removesuffix("_total") for name in OF_NODES}, "what the rules of the history ask of nodes"


@pytest.mark.rule("GC-153")
def test_a_node_shows_the_shards_of_each_role_by_state(node: tuple[Cluster, int]) -> None:
    found = series(scrape(node[1]))
    for service, shards in (("group_coordinator", 4), ("share_coordinator", 4), ("partition_leader", 0)):
        by_state = {
            state: found["num_partitions", frozenset({("service", service), ("state", state)})]
            for state in ("loading", "active", "failed")
        }
        assert by_state == {"loading": 0, "active": shards, "failed": 0}, service
    assert found["event_queue_size", frozenset({("service", "share_coordinator")})] == 0
    assert found["batch_refused_records_total", frozenset({("service", "partition_leader")})] == 0


@pytest.mark.rule("PL-1004", "PL-413")
def test_a_node_shows_what_it_delivers(node: tuple[Cluster, int]) -> None:
    cluster, port = node
    topic, group = unique("delivered"), unique("group")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
        described = admin.list_topics([topic])[topic]
        assert described.error is None
        topic_id = topic_id_text(described.topic_id)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(5):
            producer.produce(topic, str(number))
    before = series(scrape(port))
    with ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        seen = 0
        for _ in range(BOUND_S):
            seen += len(consumer.poll(1))
            consumer.commit_sync()
            if seen == 5:
                break
        found = series(scrape(port))
    accepted = "share_group_record_acknowledgements_total", frozenset({("ack_type", "accept")})
    assert found[accepted] - before[accepted] == 5
    loads = "share_group_partition_load_time_ms_count", frozenset[tuple[str, str]]()
    assert found[loads] - before[loads] == 1
    of_topic = frozenset({("topic", topic)})
    assert found["broker_topic_total_share_fetch_requests_total", of_topic] >= 1
    assert found["broker_topic_total_share_acknowledgement_requests_total", of_topic] >= 1
    assert found["broker_topic_failed_share_acknowledgement_requests_total", of_topic] == 0
    where = frozenset({("group", group), ("topic_id", topic_id), ("partition", "0")})
    assert found["share_partition_acquisition_lock_timeout_total", where] == 0
    assert found["share_partition_in_flight_batch_count", where] == 0
    assert found["share_session_cache_share_session_evictions_total", frozenset()] >= 0


def test_names_outside_of_expressions_are_no_metrics() -> None:
    words = 'histogram_quantile(0.99, sum by (namespace, le) (rate(a_bucket{x="y"}[5m]))) > 0.5 and on (pod) b == 0'
    assert metric_names(words) == {"a_bucket", "b"}


class Changing(Collector):
    """A collector over data that the event loop changes constantly, such as share-partitions and sessions."""

    def __init__(self) -> None:
        self.known = dict.fromkeys(range(3_000))

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("known", "Something.", labels=["number"])
        for number in self.known:
            family.add_metric([str(number)], 1)
        yield family

    async def change(self) -> None:
        number = len(self.known)
        while True:
            for _ in range(50):
                self.known[number] = None
                del self.known[number - 3_000]
                number += 1
            await asyncio.sleep(0)


async def _with_endpoint(registry: CollectorRegistry, **bounds: float) -> tuple[HttpEndpoint, int]:
    endpoint = HttpEndpoint(metrics_pages(registry), **bounds)
    return endpoint, await endpoint.open("127.0.0.1", 0)


@pytest.mark.asyncio
async def test_scrapes_side_by_side_with_changes_are_all_answered() -> None:
    registry, changing = CollectorRegistry(), Changing()
    registry.register(changing)
    endpoint, port = await _with_endpoint(registry)
    busy = asyncio.get_running_loop().create_task(changing.change())
    try:
        texts: list[str] = []
        for _ in range(25):
            texts += await asyncio.gather(*(asyncio.to_thread(scrape, port) for _ in range(4)))
        assert len(texts) == 100
        assert {text.count("\nknown{") for text in texts} == {3_000}
    finally:
        busy.cancel()
        await endpoint.close()


def half_sent(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 10)
    made.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
    return made


@pytest.mark.asyncio
async def test_half_sent_requests_keep_no_client_from_reading_and_are_closed() -> None:
    endpoint, port = await _with_endpoint(CollectorRegistry(), request_s=0.5)
    before = threading.active_count()
    held: list[socket.socket] = []
    try:
        for _ in range(5 * CONNECTIONS_MAX):
            held.append(await asyncio.to_thread(half_sent, port))
            assert len(endpoint._open) <= CONNECTIONS_MAX
        await asyncio.to_thread(scrape, port)
        assert threading.active_count() <= before + 8, "no thread for each"
        ends = await asyncio.gather(*(asyncio.to_thread(_end_of, one) for one in held))
        assert ends == [b""] * len(held), "each is closed, without an answer"
    finally:
        for one in held:
            one.close()
        await endpoint.close()


@pytest.mark.asyncio
async def test_who_asks_for_something_else_is_answered_and_who_sends_no_http_is_left() -> None:
    endpoint, port = await _with_endpoint(CollectorRegistry())
    try:
        for request, status in (
            (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
            (b"HEAD / HTTP/1.1\r\n\r\n", b"200"),
            (b"\xff\x00\r\n\r\n", b"405"),
        ):
            answer = await asyncio.to_thread(_exchange, port, request)
            assert answer.split(b" ")[1] == status, request
            assert answer.startswith(b"HTTP/1.1 ")
        assert await asyncio.to_thread(_exchange, port, b"x" * 100_000) == b""
    finally:
        await endpoint.close()


def _exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as made:
        made.sendall(request)
        return _end_of(made)


def _end_of(made: socket.socket) -> bytes:
    """Return all bytes until the other side closes."""
    made.settimeout(30)
    found = b""
    try:
        while data := made.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_a_reachable_address_is_announced() -> None:
    port = free_port()
    with Cluster({**QUICK, "metrics.port": str(port), "metrics.host": "0.0.0.0"}) as cluster:
        scrape(port)
        (line,) = [line for line in cluster.node.errors.splitlines() if "plaintext_metrics_served" in line]
        assert '"host": "0.0.0.0"' in line
        assert '"level": "warning"' in line


def test_refused_writes_of_topics_show_at_the_port_and_in_the_log(node: tuple[Cluster, int]) -> None:
    cluster, port = node
    topic = unique("refused")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    with Producer(bootstrap_servers=cluster.bootstrap, delivery_timeout_ms=5_000, request_timeout_ms=2_000) as producer:
        producer.produce(topic, "stored")
        assert producer.flush(30) == 0
        failed: list[Any] = []
        with redis.Redis(unix_socket_path=cluster.store_socket) as store:
            store.config_set("maxmemory", 1)
            try:
                for number in range(3):
                    producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error))
                producer.flush(60)
            finally:
                store.config_set("maxmemory", 0)
    assert [error is not None for error in failed] == [True] * 3
    found = series(scrape(port))
    assert found["batch_refused_records_total", frozenset({("service", "partition_leader")})] >= 3
    lines = [json.loads(line) for line in cluster.node.errors.splitlines() if "topic_writes_refused" in line]
    assert 1 <= len(lines) <= 1 + 60 // 10
    assert "OOM" in lines[0]["cause"]
