"""Headers of a log's batches, as a share-partition's core reads them, without payloads."""

from __future__ import annotations

from typing import NamedTuple


class Header(NamedTuple):
    """A `BatchHeader` made by hand: by default plain records outside any transaction."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False
