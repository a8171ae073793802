"""A fixture that several tests of this folder use: a standard input that is the pipe of a parent."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def parent() -> Iterator[int]:
    """Make standard input a pipe; yield the parent's end of it, which the test closes."""
    kept = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield writing
    finally:
        os.dup2(kept, 0)
        os.close(kept)
