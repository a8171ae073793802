"""Warnings and errors of commands that read a store, before they have opened one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kip932.printable import printable
from share_node.store.embedded_store import EmbeddedStoreError
from share_node.store.store_option import StoreChoice
from share_node.store.stored_copy import readable, warn
from tests.support.virtual_time import run


@pytest.mark.rule("CT-82", "CM-61")
def test_a_warning_is_escaped_and_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    warn("waiting for redis://u:secret@h:1, group \x1b[2J")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Warning: waiting for redis://***@h:1, group \\x1b[2J\n")
    assert printable(said.err, keep="\n") == said.err


@pytest.mark.parametrize(
    ("store", "data", "kind", "why"),
    [
        (None, None, click.UsageError, "give either --store URL or --data DIR"),
        ("redis://h:1", Path("d"), click.UsageError, "give either --store URL or --data DIR"),
        (None, Path("nowhere"), EmbeddedStoreError, "nowhere holds no data of `sharegroups up`"),
        ("h:1", None, ValueError, "it has no scheme"),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused(
    store: str | None, data: Path | None, kind: type[Exception], why: str
) -> None:
    async def story() -> None:
        async with readable(StoreChoice(store, data=data)):
            raise AssertionError("it must not be reached")

    with pytest.raises(kind, match=why):
        run(story())
