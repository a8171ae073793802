"""The files of a backup: whole ones are read, and any that is missing, cut or changed is named with its place."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from shard_runtime.record_log.protocol import StreamId
from shard_runtime.record_log.redis.stream_copies import RawEntry
from share_node.backup.format import HEADER, Item, StoredString, StreamPage
from share_node.backup.manifest import Manifest, Segment
from share_node.backup.segments import BackupFilesError, SegmentWriter, items, read_manifest


def page(number: int) -> StreamPage:
    return StreamPage("{gc:7}:log", [RawEntry(StreamId(1, number), (b"r", random.Random(number).randbytes(100)))])


def manifest(segments: tuple[Segment, ...]) -> Manifest:
    return Manifest("b", "c", 1, 2, "x", 1, 2, 0, 0, (), segments)


def written(directory: Path, *parts: Item, segment_bytes: int = 10**9) -> Manifest:
    writer = SegmentWriter(directory, segment_bytes)
    for part in parts:
        writer.add(part)
    writer.seal()
    made = manifest(tuple(writer.segments))
    writer.publish(made)
    return made


def read(directory: Path) -> list[Item]:
    return [item for segment in read_manifest(directory).segments for item in items(directory, segment)]


@pytest.mark.rule("CM-142")
def test_what_is_written_is_read_and_files_are_of_bounded_size(tmp_path: Path) -> None:
    parts = [page(number) for number in range(10)]
    made = written(tmp_path / "b", *parts, segment_bytes=300)
    assert [segment.name for segment in made.segments] == [f"segment-{number:06}" for number in range(1, 6)]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "manifest.json", *(segment.name for segment in made.segments),
    ]  # fmt: skip
    assert read(tmp_path / "b") == parts


@pytest.mark.rule("CM-142")
def test_without_a_manifest_a_directory_holds_no_backup(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "b", 200)
    for number in range(3):
        writer.add(page(number))
    with pytest.raises(
        BackupFilesError, match=r"has no manifest\.json: the backup was interrupted, or is still being made"
    ):
        read_manifest(tmp_path / "b")
    writer.discard()
    (tmp_path / "other").mkdir()
    with pytest.raises(BackupFilesError, match=r"has no manifest\.json: it holds no backup"):
        read_manifest(tmp_path / "other")
    with pytest.raises(BackupFilesError, match=rf"there is no directory {tmp_path}/none"):
        read_manifest(tmp_path / "none")


@pytest.mark.rule("CM-142")
def test_a_file_has_another_name_until_it_is_whole(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path)
    writer.add(page(1))
    assert [path.name for path in tmp_path.iterdir()] == ["segment-000001.part"]
    writer.seal()
    assert [path.name for path in tmp_path.iterdir()] == ["segment-000001"]


@pytest.mark.rule("CM-142")
def test_a_directory_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(BackupFilesError, match=r"is not empty \(it holds mine\); give a directory that is empty"):
        SegmentWriter(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_of_two_writers_of_one_directory_the_second_is_refused(tmp_path: Path) -> None:
    one, two = SegmentWriter(tmp_path / "b"), SegmentWriter(tmp_path / "b")
    one.add(page(1))
    with pytest.raises(BackupFilesError, match=r"cannot write .*segment-000001\.part: File exists"):
        two.add(page(1))
    two.discard()
    one.seal()
    one.publish(manifest(tuple(one.segments)))
    assert len(read(tmp_path / "b")) == 1


@pytest.mark.rule("CM-142")
def test_what_was_kept_is_rewound_and_the_checksum_with_it(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "b", 250)
    kept, again = page(1), page(3)
    writer.add(kept)
    writer.keep()
    for number in range(5):
        writer.add(page(number))
    writer.rewind()
    writer.add(again)
    writer.settle()
    writer.add(page(4))
    writer.seal()
    writer.publish(manifest(tuple(writer.segments)))
    assert read(tmp_path / "b")[:2] == [kept, again]
    assert len(read(tmp_path / "b")) == 3


def test_a_rewind_may_leave_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "b")
    writer.keep()
    writer.add(page(1))
    writer.rewind()
    writer.seal()
    writer.publish(manifest(tuple(writer.segments)))
    assert read(tmp_path / "b") == []


@pytest.mark.rule("CM-142")
def test_what_a_writer_made_is_removed(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "new", 200)
    for number in range(5):
        writer.add(page(number))
    writer.discard()
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    writer = SegmentWriter(tmp_path / "there")
    writer.add(page(1))
    writer.discard()
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.rule("CM-142")
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = SegmentWriter(tmp_path / "b")
    writer.add(page(1))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        BackupFilesError, match=r"No space left on device; .* bytes are free there\. Nothing in .* is a backup"
    ):
        writer.seal()
    writer.discard()
    assert not (tmp_path / "b").exists()


@pytest.mark.rule("CM-143")
def test_every_changed_byte_of_a_segment_is_found_with_its_place(tmp_path: Path) -> None:
    written(tmp_path / "b", page(1), StoredString("gc:config", b"50"))
    path = tmp_path / "b" / "segment-000001"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BackupFilesError, match=r"segment-000001 is damaged at byte (0|29|[0-9]{3}):"):
            read(tmp_path / "b")
    path.write_bytes(whole)
    assert len(read(tmp_path / "b")) == 2
    assert whole.startswith(HEADER)


@pytest.mark.rule("CM-143")
def test_a_shortened_a_longer_a_missing_and_a_swapped_file_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "b", page(1), page(2), segment_bytes=1)
    first, second = tmp_path / "b" / "segment-000001", tmp_path / "b" / "segment-000002"
    whole = first.read_bytes()
    for wrong in (whole[:-1], whole + b"x"):
        first.write_bytes(wrong)
        with pytest.raises(BackupFilesError, match=f"segment-000001 has {len(wrong)} bytes, but the manifest says"):
            read(tmp_path / "b")
    first.unlink()
    with pytest.raises(BackupFilesError, match="segment-000001 is missing"):
        read(tmp_path / "b")
    first.write_bytes(second.read_bytes())
    with pytest.raises(BackupFilesError, match="segment-000001 is damaged: 1 frames with the checksum"):
        read(tmp_path / "b")
