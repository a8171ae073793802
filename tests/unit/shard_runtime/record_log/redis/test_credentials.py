"""The file with the store's password: what it may hold, and which passwords are tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kip932.store_settings import StoreAccess
from shard_runtime.record_log.redis.credentials import StoreCredentials
from shard_runtime.record_log.redis.topology import open_store


@pytest.mark.rule("CM-184")
@pytest.mark.parametrize("written", ["geheim", "geheim\n", "geheim\r\n"])
def test_a_line_end_is_no_part_of_the_password(tmp_path: Path, written: str) -> None:
    (tmp_path / "p").write_bytes(written.encode())
    assert StoreCredentials("", tmp_path / "p").read() == "geheim"


@pytest.mark.rule("CM-184", "CM-61a")
@pytest.mark.parametrize(
    ("written", "found"),
    [(b"", "nothing"), (b"\n", "1 lines"), (b"geheim\ngeheim\n", "2 lines"), (b"geheim\xff", "not text"),
     (b"geheim" * 1000, "1 lines, 4097 bytes")],
)  # fmt: skip
def test_an_unusable_file_is_named_and_its_content_is_not_shown(tmp_path: Path, written: bytes, found: str) -> None:
    (tmp_path / "p").write_bytes(written)
    with pytest.raises(ValueError, match=found) as refused:
        open_store("redis://h:1", access=StoreAccess(password=tmp_path / "p"))
    assert str(tmp_path / "p") in str(refused.value)
    assert "geheim" not in repr(refused.value)


@pytest.mark.rule("CM-184")
def test_the_last_password_that_worked_is_tried_after_the_files_and_without_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("old")
    credentials = StoreCredentials("", file)
    assert credentials.candidates() == ["old"]
    credentials.accepted("old", refused=False)
    file.write_text("new")
    assert credentials.candidates() == ["new", "old"]
    file.unlink()
    with capture_logs() as lines:
        assert credentials.candidates() == ["old"]
        assert credentials.candidates() == ["old"]
    (line,) = lines
    assert line["event"] == "store_password_unreadable"


@pytest.mark.rule("CM-184")
def test_a_password_that_the_store_refuses_is_reported_once_until_one_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("new")
    credentials = StoreCredentials("", tmp_path / "p")
    with capture_logs() as lines:
        for refused in (True, True, False, True):
            credentials.accepted("old", refused=refused)
    assert [line["event"] for line in lines] == ["store_password_refused"] * 2
    assert str(tmp_path / "p") in lines[0]["cause"]


@pytest.mark.rule("CM-184")
def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it cannot be read: No such file"):
        open_store("redis://h:1", access=StoreAccess(password=tmp_path / "p"))


@pytest.mark.rule("CM-184", "CM-61a")
def test_what_is_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("geheim")
    with pytest.raises(ValueError, match=r"it holds a password, and store\.password\.location") as refused:
        open_store("redis://:other@h:1", access=StoreAccess(password=tmp_path / "p"))
    assert "other" not in str(refused.value).replace("another", "")
    with pytest.raises(ValueError, match=r"it names the user a, but store.username is b"):
        open_store("redis://a@h:1", access=StoreAccess("b"))
