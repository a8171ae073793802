"""The headers of batches of a log, as a share-partition's core reads them, without payloads."""

from __future__ import annotations

from typing import NamedTuple


class Header(NamedTuple):
    """A `BatchHeader` by hand: plain records of nobody's transaction, unless said otherwise."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False
