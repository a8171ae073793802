"""The lines of failed jobs, as a worker writes them: one for each cause and minute, with counts."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from sharegroups.aio import ShareConsumer
from sharegroups.worker import Reject, Retry, runner
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import JobSpec
from sharegroups.worker.runner import Runner
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce


def _worker(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, handler: object) -> Runner:
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)  # type: ignore[arg-type]
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    return Runner(
        settings, {"t": spec}, concurrency=4, prefetch=10, grace=1.0, limits=GroupLimits(5), tally=Tally(["t"])
    )


@pytest.mark.rule("CL-179")
@on_fake_cluster()
async def test_the_count_is_written_at_the_end_of_the_minute_and_at_the_end_of_the_worker(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(value: bytes) -> None:
        raise Reject("no such user") if value.endswith(b"7") else Reject(f"order {value!r} is bad")

    worker = _worker(fake, monkeypatch, handler)
    running = asyncio.create_task(worker.run())
    produce(fake, 20)
    await asyncio.sleep(30)
    said = [record.getMessage() for record in caplog.records if "was rejected" in record.getMessage()]
    assert [line.split(",")[0] for line in said] == ["t-0@0: " + handler.__qualname__, "t-0@7: " + handler.__qualname__]
    await asyncio.sleep(33)
    counts = [record for record in caplog.records if "more jobs ended" in record.getMessage()]
    assert [record.getMessage().split(":")[0] for record in counts] == [
        "17 more jobs ended for the same cause within 60 s; the last",
        "1 more jobs ended for the same cause within 60 s; the last",
    ]
    assert counts[0].levelname == "ERROR"
    assert "t-0@19: " in counts[0].getMessage()
    fields = counts[0].fields  # type: ignore[attr-defined]
    assert (fields["group"], fields["topic"], fields["offset"], fields["held_back"]) == ("g", "t", 19, 17)
    caplog.clear()
    produce(fake, 5)
    await asyncio.sleep(1)
    worker.stop()
    await running
    said = [record.getMessage() for record in caplog.records if "was rejected" in record.getMessage()]
    assert len(said) == 2
    assert said[0].startswith("t-0@20: "), "a new minute begins with a line"
    assert said[1].startswith("4 more jobs ended for the same cause within 1 s; the last: t-0@24: ")


@pytest.mark.rule("CL-186")
@on_fake_cluster()
async def test_a_job_that_takes_long_is_named_after_a_minute_ten_and_each_hour(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(value: bytes) -> None:
        await asyncio.sleep(9_000 if value == b"v0" else 100 if value == b"v1" else 1)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if "is not finished after" in record.getMessage()]

    worker = _worker(fake, monkeypatch, handler)
    running = asyncio.create_task(worker.run())
    produce(fake, 3)
    await asyncio.sleep(55)
    assert said() == []
    await asyncio.sleep(15)
    (line,) = said()
    assert line.startswith(f"t-0@0: {handler.__qualname__}, delivery 1, is not finished after 6")
    assert line.endswith(
        " s (1 more after a shorter time); the job has no timeout: if the handler hangs, its record is held for ever"
    )
    await asyncio.sleep(8_930)
    assert [text.split(" after ")[1].split(" s")[0][:-1] for text in said()] == ["6", "60", "360", "720"]
    assert not [text for text in said()[1:] if "more jobs" in text]
    (fields,) = {record.fields["held_s"] for record in caplog.records if "after 72" in record.getMessage()}  # type: ignore[attr-defined]
    assert 7_200 <= fields < 7_210
    worker.stop()
    await running
