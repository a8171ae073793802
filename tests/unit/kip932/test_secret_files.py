"""Which files with secrets are said to be readable by everyone, and which are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kip932.secret_files import readable_by_all


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that everyone can enter, although pytest makes its own private."""
    real = os.stat

    def stat(path: object, **how: bool) -> os.stat_result:
        found = real(path, **how)  # type: ignore[arg-type]
        if Path(os.fsdecode(path)) not in tmp_path.parents:  # type: ignore[arg-type]
            return found
        return os.stat_result((found.st_mode | 0o001, *found[1:]))

    monkeypatch.setattr(os, "stat", stat)
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.mark.rule("CM-204")
@pytest.mark.parametrize(
    ("mode", "open_to_all"), [(0o644, True), (0o604, True), (0o640, False), (0o600, False), (0o622, False)]
)
def test_the_mode_decides(folder: Path, mode: int, open_to_all: bool) -> None:
    key = folder / "a.key"
    key.write_text("secret")
    key.chmod(mode)
    said = f"every user of this machine can read {key} (mode {mode:04o}); expected 0600 or 0640"
    assert readable_by_all(str(key)) == (said if open_to_all else "")


@pytest.mark.rule("CM-204")
def test_a_folder_that_others_cannot_enter_protects_its_files(folder: Path) -> None:
    private = folder / "private"
    private.mkdir()
    private.chmod(0o755)
    key = private / "a.key"
    key.write_text("secret")
    key.chmod(0o644)
    assert readable_by_all(key)
    private.chmod(0o700)
    assert not readable_by_all(key)
    link = folder / "link.key"
    link.symlink_to(key)
    assert not readable_by_all(link), "the file counts, not the link"


@pytest.mark.rule("CM-204")
def test_nothing_is_said_of_a_file_that_is_not_there(folder: Path) -> None:
    assert not readable_by_all(folder / "none.key")
