"""Which store `sharegroups state` looks at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest

from share_node.embedded_store import EmbeddedStoreError
from share_node.state_check import opened


async def url_of(store: str | None, data: Path | None) -> str:
    async with opened(store, "", data) as url:
        return url


def test_a_store_is_named_by_its_url_or_by_a_data_directory_and_not_by_both() -> None:
    assert asyncio.run(url_of("redis://h:1", None)) == "redis://h:1"
    for store, data in ((None, None), ("redis://h:1", Path("d"))):
        with pytest.raises(click.UsageError, match="either --store URL or --data DIR"):
            asyncio.run(url_of(store, data))


def test_a_directory_that_holds_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedStoreError, match="holds no data"):
        asyncio.run(url_of(None, tmp_path))
