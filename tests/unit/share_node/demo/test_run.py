"""The demo's run: when it kills a worker, and what it leaves in a user's cluster."""

from pathlib import Path
from typing import Self

import pytest

from share_node.demo import run
from share_node.demo.jobs import (
    FileInput,
    StandardLibrary,
)
from share_node.demo.run import Demo
from sharegroups import KafkaError, NetworkError, UnknownTopicOrPartitionError


@pytest.mark.rule("CM-71")
@pytest.mark.parametrize(
    ("records", "workers", "kills"), [(24, 2, False), (25, 2, True), (25, 1, False), (0, 4, False)]
)
def test_a_worker_is_killed_only_when_one_must_get_so_far(
    tmp_path: Path, records: int, workers: int, kills: bool
) -> None:
    (tmp_path / "a.txt").write_text("line\n" * records)
    assert Demo("h:1", FileInput(tmp_path / "a.txt"), workers, None).kills is kills


class _FakeAdmin:
    """Gives every deletion the same result: `error`, or success if it is None."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error
        self.deleted: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def delete_topics(self, names: list[str]) -> dict[str, KafkaError | None]:
        self.deleted += names
        return dict.fromkeys(names, self._error)


@pytest.mark.rule("CM-71")
@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (None, "topic {0} is deleted; topic dlq.{0} is deleted; group {0} stays"),
        (
            UnknownTopicOrPartitionError(),
            "topic {0} is deleted; topic dlq.{0} is deleted; group {0} stays",
        ),  # the response to an earlier attempt was lost
        (NetworkError("gone"), "topic {0} stays: gone; topic dlq.{0} stays: gone; group {0} stays"),
    ],
)
def test_a_demo_in_a_cluster_of_the_users_deletes_its_topics_and_says_what_stays(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None, reported: str
) -> None:
    admin = _FakeAdmin(error)
    monkeypatch.setattr(run, "Admin", lambda settings: admin)
    demo = Demo("127.0.0.1:1", StandardLibrary(), 1, None)
    assert demo.clear_away() == reported.format(demo.topic)
    assert admin.deleted == [demo.topic, f"dlq.{demo.topic}"]
