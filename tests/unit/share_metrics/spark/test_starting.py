"""An impossible master is reported before Spark is started, which would take a minute to notice."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest

from share_metrics.java import NoJavaError, SparkStartError
from share_metrics.spark.session import check_master, spark_starting


@pytest.fixture
def listening() -> Iterator[int]:
    """The port of a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def deaf() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]", "yarn", "k8s://https://h:6443"])
def test_what_spark_knows_is_left_to_spark(master: str) -> None:
    check_master(master)


def test_one_master_of_several_is_enough(listening: int, deaf: int) -> None:
    check_master(f"spark://127.0.0.1:{deaf},127.0.0.1:{listening}")
    with pytest.raises(SparkStartError, match=f"no master of Spark answers at 127.0.0.1:{deaf}: Connection refused"):
        check_master(f"spark://127.0.0.1:{deaf}")


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("nonsense", "'nonsense' is not a master that Spark supports; try local"),
        ("local[two]", "is not a master that Spark supports"),
        ("spark://host", "does not say where the master is; try spark://HOST:7077"),
        ("spark://:7077", "does not say where the master is"),
    ],
)
def test_what_it_does_not_know_is_reported_with_what_to_try(master: str, words: str) -> None:
    with pytest.raises(SparkStartError, match=words.replace("[", r"\[")):
        check_master(master)


def test_ctrl_c_means_behind_the_start_what_it_meant_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with spark_starting():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark sets its own handler
    assert signal.getsignal(signal.SIGINT) is before


def test_to_have_no_java_is_one_way_not_to_start() -> None:
    assert issubclass(NoJavaError, SparkStartError)
