"""`buf breaking` against the newest image in protos/released: what it accepts, and how it reports a breaking change."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RELEASED = sorted((ROOT / "protos" / "released").glob("kip932-*.json"))
BUF = Path(sys.executable).with_name("buf")
GROUP_LOG = "kip932/records/v1/group_log.proto"
HEARTBEAT = "kip932/api/v1/share_group_heartbeat.proto"


def compared(folder: Path, file: str, old: str, new: str) -> tuple[int, str]:
    """Return status and output of `buf breaking` after replacing `old` with `new` in one .proto file."""
    shutil.copytree(ROOT / "protos", folder / "protos", ignore=shutil.ignore_patterns("*_pb2*", "__pycache__"))
    shutil.copy(ROOT / "buf.yaml", folder)
    path = folder / "protos" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new), encoding="utf-8")
    words = [str(BUF), "breaking", "--against", str(RELEASED[-1])]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_protocol_of_this_version_was_released() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"kip932-{version}.json" in {path.name for path in RELEASED}, f"try: make release-protos VERSION={version}"


def test_make_style_compares_with_the_newest_release() -> None:
    """Versions are compared numerically, not as text: 0.10.0 comes after 0.9.0."""
    done = subprocess.run(
        ["make", "--dry-run", "style"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if "buf breaking" in line]
    newest = max(RELEASED, key=lambda path: [int(part) for part in path.stem.split("-")[1].split(".")])
    assert line.split()[-1] == str(newest.relative_to(ROOT))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (GROUP_LOG, "  int32 epoch = 1;\n  // Hash", "  int32 epoch = 1;\n  // More.\n  int64 more = 190;\n  // Hash"),
        (HEARTBEAT, "message ShareGroupHeartbeatRequest {", "message More {}\nmessage ShareGroupHeartbeatRequest {"),
    ],
    ids=["new-field", "new-message"],
)
def test_what_only_adds_passes(tmp_path: Path, file: str, old: str, new: str) -> None:
    assert compared(tmp_path, file, old, new) == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (
            GROUP_LOG,
            "  int64 metadata_hash = 2;",
            "  string metadata_hash = 2;",
            'Field "2" with name "metadata_hash" on message "ShareGroupMetadata" changed type from "int64" to "string"',
        ),
        (
            GROUP_LOG,
            "  int64 metadata_hash = 2;",
            "  int64 metadata_hash = 3;",
            'Previously present field "2" with name "metadata_hash" on message "ShareGroupMetadata" was deleted',
        ),
        (
            GROUP_LOG,
            "  int64 metadata_hash = 2;",
            "  int64 subscription_hash = 2;",
            'Field "2" on message "ShareGroupMetadata" changed name from "metadata_hash" to "subscription_hash"',
        ),
        (
            GROUP_LOG,
            "    DeletedGroupEpoch deleted_group_epoch = 90;",
            "    ShareGroupMetadata deleted_group_epoch = 90;",
            'changed type from "kip932.records.v1.DeletedGroupEpoch" to "kip932.records.v1.ShareGroupMetadata"',
        ),
    ],
    ids=["type", "number", "name", "message"],
)
def test_what_breaks_is_named_with_its_line(tmp_path: Path, file: str, old: str, new: str, expected: str) -> None:
    status, words = compared(tmp_path, file, old, new)
    assert status == 100
    assert words.startswith(f"protos/{file}:")
    assert expected in words
