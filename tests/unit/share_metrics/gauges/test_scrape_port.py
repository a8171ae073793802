"""The port that serves the pipeline's gauges: all that alerts and dashboards use, and no client can occupy it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kip932.http_endpoint import CONNECTIONS_MAX
from share_metrics.gauges.gauges import Gauges
from share_metrics.gauges.scrape_port import scrape_port


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Gauges())
    return made


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
        return text


@pytest.mark.rule("PM-38")
def test_a_real_scrape_shows_every_name_that_rules_may_use() -> None:
    with scrape_port(registry(), "127.0.0.1", 0) as port:
        families = {family.name: family.type for family in text_string_to_metric_families(scrape(port))}
    assert {family.name: family.type for family in Gauges().collect()}.items() <= families.items()


def test_half_sent_requests_take_up_neither_the_port_nor_threads() -> None:
    before = threading.active_count()
    held: list[socket.socket] = []
    with scrape_port(registry(), "127.0.0.1", 0) as port:
        try:
            for _ in range(5 * CONNECTIONS_MAX):
                made = socket.create_connection(("127.0.0.1", port), 10)
                made.sendall(b"GET /metrics HTTP/1.1\r\n")
                held.append(made)
            scrape(port)
            most = before + 1 + CONNECTIONS_MAX
            for _ in range(600):  # threads of closed connections end on their own
                if threading.active_count() <= most:
                    break
                time.sleep(0.05)
            assert threading.active_count() <= most
            held[0].settimeout(30)
            with contextlib.suppress(ConnectionResetError):  # it was closed before its half of the request was read
                assert held[0].recv(1) == b"", "the oldest is closed"
        finally:
            for made in held:
                made.close()
