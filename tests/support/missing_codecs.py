"""Temporarily hides compression libraries, as in an environment without their extras."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from kip932.compression import kinds

#: The package for each kind of compression.
_PACKAGES: Final = {
    "snappy": "cramjam",
    "lz4": "lz4",
    "zstd": "compression.zstd" if sys.version_info >= (3, 14) else "backports",
}


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Keep this process from compressing or decompressing these kinds inside the context: `without("zstd")`."""
    packages = {_PACKAGES[name] for name in names}
    gone = [name for name in sys.modules if name.startswith(tuple(f"{package}." for package in packages))]
    with mock.patch.dict(sys.modules, dict.fromkeys([*gone, *packages])):
        for name in names:
            sys.modules.pop(f"kip932.compression.{name}_frames", None)
        kinds._found.cache_clear()
        try:
            yield
        finally:
            kinds._found.cache_clear()
