"""Every column of the reader's rows has one description, in the order of its schema."""

from __future__ import annotations

import pytest

from share_metrics.reader import Kind, schema_of
from share_metrics.reader.decoding import group, share_state
from share_metrics.reader.meanings import COMMON, OWN, RECORD_TYPES


@pytest.mark.parametrize("kind", Kind)
def test_every_column_has_its_meaning_in_the_order_of_the_schema(kind: Kind) -> None:
    assert [*COMMON, *OWN[kind]] == schema_of(kind).names
    assert all(words and "|" not in words for words in (COMMON | OWN[kind]).values())  # "|" would end a table's cell


def test_every_type_of_record_that_is_decoded_is_named() -> None:
    assert RECORD_TYPES[Kind.SHARE_STATE] == tuple(name for name, _ in share_state.TYPES.values())
    assert RECORD_TYPES[Kind.GROUP] == tuple(name for name, _, _ in group._TYPES.values())
