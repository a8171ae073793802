"""A data directory copied while `up` works on it, and a second `up` on the copy."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis

from sharegroups import Admin, DeliveryReport, KafkaError, NewTopic, Producer, ShareConsumer
from tests.attack.definition import Attack, Target
from tests.support.node import QUICK, StartedProcess, up_words

_TOPIC: Final = "copied"
_GROUP: Final = "copied-group"
_END_S: Final = 60.0
_PAUSE_S: Final = 0.02


def _copy(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Copy an original under load, start the copy, cut the original's connections to its store, and end the copy.

    The original must contain everything that it confirmed before, meanwhile and afterwards, and nothing from the copy.
    The copy must contain what was confirmed before it was made, and what it confirmed itself.
    """
    place = Path(tempfile.mkdtemp(prefix="sg-copy-"))  # short, as a socket's path has at most 108 bytes
    try:
        with _up(place / "original") as original, Admin({"bootstrap.servers": original["bootstrap"]}) as admin:
            assert not any(admin.create_topics([NewTopic(_TOPIC, 1)]).values())
            with _Load(original["bootstrap"], "original") as load:
                load.wait_confirmed(1)
                before = list(load.confirmed)
                shutil.copytree(place / "original", place / "copy")
                with _up(place / "copy") as copy:
                    assert copy["store"] != original["store"], f"both work on {copy['store']}"
                    _cut_connections(original["store"])
                    load.wait_confirmed(1)
                    with _Load(copy["bootstrap"], "copy") as other:
                        other.wait_confirmed(1)
                        time.sleep(seconds)
                    _receive(copy["bootstrap"], [*before, *other.confirmed])
                _cut_connections(original["store"])
                load.wait_confirmed(1)
            strange = [
                value for value in _receive(original["bootstrap"], load.confirmed) if value not in load.confirmed
            ]
            assert not strange, f"the original has records that its producer did not send: {sorted(strange)[:5]}"
        return f"{len(load.confirmed)} records of the original and {len(other.confirmed)} of the copy, all there"
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _up(data: Path) -> Iterator[dict[str, Any]]:
    """Run `sharegroups up` on a directory; yield the fields of its ready line."""
    process = StartedProcess(up_words(data, QUICK), data.parent)
    try:
        yield json.loads(process.first_line())
    finally:
        process.stop()


class _Load:
    """A producer that waits for each record's confirmation, as a context manager; `confirmed` holds the values."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap, self._name = bootstrap, name
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.confirmed: list[str] = []

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise AssertionError(f"the {self._name}'s producer failed: {self._failure!r}") from self._failure

    def wait_confirmed(self, count: int) -> None:
        """Wait until this many more records, sent after this call, are confirmed."""
        expected, deadline = len(self.confirmed) + count + 1, time.monotonic() + _END_S
        while len(self.confirmed) < expected:
            assert self._thread.is_alive(), f"the {self._name}'s producer failed: {self._failure!r}"
            assert time.monotonic() < deadline, f"the {self._name} confirmed no record for {_END_S:.0f} s"
            time.sleep(_PAUSE_S)

    def _run(self) -> None:
        try:
            with Producer({"bootstrap.servers": self._bootstrap}) as producer:
                while not self._stop.wait(_PAUSE_S):
                    value = f"{self._name} {len(self.confirmed)}"
                    producer.produce(_TOPIC, value, on_delivery=self._confirmed)
                    producer.flush()
        except Exception as failure:
            self._failure = failure

    def _confirmed(self, error: KafkaError | None, report: DeliveryReport) -> None:
        if error is not None:
            raise error
        self.confirmed.append((report.value() or b"").decode())


def _cut_connections(store: str) -> None:
    """Close every connection to a store, as a restart of it does: its clients connect again, by the socket's path."""
    assert Path(store.removeprefix("unix://")).exists(), f"the socket of the store is gone: {store}"
    with redis.Redis(unix_socket_path=store.removeprefix("unix://")) as client:
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def _receive(bootstrap: str, expected: Sequence[str]) -> list[str]:
    """Accept records until all expected ones have arrived; return those that arrived."""
    came: list[str] = []
    missing, deadline = set(expected), time.monotonic() + _END_S
    with ShareConsumer({"bootstrap.servers": bootstrap, "group.id": _GROUP}) as consumer:
        consumer.subscribe([_TOPIC])
        while missing:
            assert time.monotonic() < deadline, f"confirmed and not there: {sorted(missing)[:5]} of {len(missing)}"
            values = [(message.value() or b"").decode() for message in consumer.poll(timeout=1.0)]
            came += values
            missing.difference_update(values)
        consumer.commit_sync()
    return came


COPY_ATTACKS: Final = (
    Attack("copied-directory", "A second `up` on a copy of a data directory that is in use and under load", _copy),
)
