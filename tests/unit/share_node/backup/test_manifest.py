"""The manifest is read as it was written, or refused with the reason."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from share_node.backup.manifest import Manifest, ManifestError, Segment, decode, encode

MANIFEST = Manifest(
    backup_id="b1",
    cluster_id="c1",
    began_ms=1,
    ended_ms=2,
    made_by="sharegroups 0.1.0",
    streams=3,
    entries=40,
    topics=1,
    damaged=0,
    left_out=("AAAAAAAAAAAAAAAAAAAAAQ",),
    segments=(Segment("segment-000001", 100, "0badcafe", 4), Segment("segment-000002", 20, "00000001", 1)),
)


@pytest.mark.rule("CM-142")
def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode(encode(MANIFEST)) == MANIFEST
    assert MANIFEST.bytes == 120
    document = json.loads(encode(MANIFEST))
    assert (document["format"], document["version"], document["cluster_id"]) == ("sharegroups-backup", 1, "c1")


@pytest.mark.rule("CM-142")
def test_a_changed_value_is_noticed() -> None:
    text = encode(MANIFEST)
    for before, after in ((b"40", b"41"), (b"0badcafe", b"0badcaff"), (b'"c1"', b'"c2"')):
        assert before in text
        with pytest.raises(ManifestError, match="it is damaged: its checksum is"):
            decode(text.replace(before, after))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "its version is 2, but this build reads 1: restore it with a newer build"),
        ({"format": "tar"}, "its format is 'tar', expected 'sharegroups-backup'"),
    ],
)
@pytest.mark.rule("CM-143")
def test_another_format_or_a_newer_version_is_refused_before_anything_else(
    changes: dict[str, object], said: str
) -> None:
    with pytest.raises(ManifestError, match=said):
        decode(json.dumps(json.loads(encode(MANIFEST)) | changes).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"{", b"\xff\xfe"])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(ManifestError, match="it is not a manifest of a backup, or damaged"):
        decode(text)


@pytest.mark.parametrize("name", ["../segment-000001", "/etc/passwd", "segment-1", "segment-000001.part"])
def test_only_files_of_a_backup_are_named(name: str) -> None:
    with pytest.raises(ManifestError, match="it names a file"):
        decode(encode(replace(MANIFEST, segments=(Segment(name, 1, "0", 1),))))
