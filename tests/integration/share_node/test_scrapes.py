"""Prometheus at a node's metrics port, and misuse of the port by other clients: real sockets, a real node."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kip932.http_endpoint import CONNECTIONS_MAX, HttpEndpoint
from kip932.ids import topic_id_text
from kip932.metrics_page import metrics_pages
from sharegroups import Admin, NewTopic, Producer, ShareConsumer
from tests.packaging.metrics_listed import OUTSIDE, selectors
from tests.packaging.test_monitoring import expressions
from tests.support.node import BOUND_S, QUICK, Cluster, unique
from tests.support.ports import free_port
from tests.support.promtool import assert_without_remarks

#: Beginnings of names of metrics that a node without TLS does not serve, or no node.
ELSEWHERE = ("sharegroups_ingest_", "sharegroups_backup_", "sharegroups_certificate_")


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


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Cluster, int]]:
    port = free_port()
    with Cluster({**QUICK, "metrics.port": str(port)}) as cluster:
        yield cluster, port


def test_alerts_and_panels_ask_a_node_for_what_a_real_node_serves(node: tuple[Cluster, int]) -> None:
    """What they ask the ingest for is tested with the pipeline, and what they ask of certificates with TLS."""
    families = list(text_string_to_metric_families(scrape(node[1])))  # some have no series yet
    served = {family.name + "_total" * (family.type == "counter") for family in families}
    served |= {f"{family.name}_bucket" for family in families if family.type == "histogram"}
    asked = {place: {name for name, _ in selectors(expression)} for place, expression in expressions().items()}
    of_nodes = {
        place: {name for name in names if not OUTSIDE.match(name) and not name.startswith(ELSEWHERE)}
        for place, names in asked.items()
    }
    assert {"sharegroups_shards"} in of_nodes.values()
    assert {place: names - served for place, names in of_nodes.items() if names - served} == {}


@pytest.mark.rule("GC-153")
def test_a_node_shows_the_shards_of_each_role_by_state(node: tuple[Cluster, int]) -> None:
    found = series(scrape(node[1]))
    for service, shards in (("group_coordinator", 4), ("share_coordinator", 4), ("partition_leader", 0)):
        by_state = {
            state: found["sharegroups_shards", frozenset({("service", service), ("state", state)})]
            for state in ("loading", "active", "failed")
        }
        assert by_state == {"loading": 0, "active": shards, "failed": 0}, service
    assert found["sharegroups_event_queue_size", frozenset({("service", "share_coordinator")})] == 0
    assert found["sharegroups_batch_refused_records_total", frozenset({("service", "partition_leader")})] == 0


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
    accepted = "sharegroups_record_acknowledgements_total", frozenset({("ack_type", "accept")})
    assert found[accepted] - before[accepted] == 5
    loads = "sharegroups_share_partition_load_time_seconds_count", frozenset[tuple[str, str]]()
    assert found[loads] - before[loads] == 1
    of_topic = frozenset({("topic", topic)})
    assert found["sharegroups_topic_share_fetch_requests_total", of_topic] >= 1
    assert found["sharegroups_topic_share_acknowledgement_requests_total", of_topic] >= 1
    assert found["sharegroups_topic_failed_share_acknowledgement_requests_total", of_topic] == 0
    where = frozenset({("group", group), ("topic_id", topic_id), ("partition", "0")})
    assert found["sharegroups_share_partition_acquisition_lock_timeouts_total", where] == 0
    assert found["sharegroups_share_partition_in_flight_batches", where] == 0
    assert found["sharegroups_share_session_evictions_total", frozenset()] >= 0


@pytest.mark.rule("CM-174")
def test_prometheus_own_check_has_no_remark_on_what_a_node_serves(node: tuple[Cluster, int]) -> None:
    text = scrape(node[1])
    assert {name for name, _ in series(text)} >= {
        "sharegroups_partitions_led",
        "sharegroups_share_coordinator_writes_total",
    }
    assert "_created" not in text
    assert_without_remarks(text)


@pytest.mark.rule("CM-226")
def test_a_node_shows_its_process_and_the_memory_that_this_may_use(node: tuple[Cluster, int]) -> None:
    found = series(scrape(node[1]))
    of = {name: found[name, frozenset()] for name, labels in found if name.startswith("process_")}
    assert 10e6 < of["process_resident_memory_bytes"] < found["sharegroups_memory_limit_bytes", frozenset()]
    assert 5 < of["process_open_fds"] < of["process_max_fds"]
    assert of["process_cpu_seconds_total"] > 0
    assert of["process_start_time_seconds"] < time.time()


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
    assert found["sharegroups_batch_refused_records_total", frozenset({("service", "partition_leader")})] >= 3
    lines = [json.loads(line) for line in cluster.node.errors.splitlines() if "topic_writes_refused" in line]
    assert 1 <= len(lines) <= 1 + 60 // 10
    assert "OOM" in lines[0]["cause"]
