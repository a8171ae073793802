"""A sample of where logs end is there whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from share_metrics import log_samples
from share_metrics.reader.log_ends import LogEnd


@pytest.mark.rule("PM-18")
def test_a_sample_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_samples, "log_ends", lambda store: [LogEnd("t", 0, 0, 10, 10)])
    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    store: Any = None
    with pytest.raises(OSError, match="No space left"):
        log_samples.sample(store, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
