"""The limit of the embedded store's memory: its default, and what it is for data that are there already."""

from __future__ import annotations

import pytest

from share_node.store.store_limit import NO_LIMIT, StoreLimit

GIB = 1 << 30


@pytest.mark.rule("CM-210")
def test_the_default_is_half_of_the_memory_and_none_where_that_is_not_known() -> None:
    assert StoreLimit.share_of(4 * GIB) == StoreLimit(2 * GIB, 4 * GIB)
    assert StoreLimit.share_of(1 << 62) == NO_LIMIT


@pytest.mark.rule("CM-210")
@pytest.mark.parametrize(
    ("used", "limit"),
    [
        (0, 2 * GIB), (GIB, 2 * GIB), (8 * GIB // 5, 2 * GIB), (2 * GIB, 5 * GIB // 2), (7 * GIB // 2, 4 * GIB),
        (9 * GIB, 4 * GIB),
    ],
)  # fmt: skip
def test_data_of_a_version_without_a_limit_leave_a_quarter_free_up_to_the_whole_memory(used: int, limit: int) -> None:
    assert StoreLimit.share_of(4 * GIB).with_data(used).limit_bytes == limit


@pytest.mark.rule("CM-210")
def test_a_limit_that_was_given_and_none_stay_what_they_are() -> None:
    for given in (StoreLimit(GIB), NO_LIMIT):
        assert given.with_data(9 * GIB) == given


@pytest.mark.rule("CM-210")
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (StoreLimit.share_of(4 * GIB), "2.0 GiB of memory, half of the 4.0 GiB here"),
        (StoreLimit.share_of(4 * GIB).with_data(2 * GIB), "2.5 GiB of memory, for the data that it has already; there"),
        (StoreLimit(GIB), "1.0 GiB of memory; then it refuses writes."),
        (NO_LIMIT, "has no limit"),
    ],
)
def test_the_sentence_for_the_start_says_the_limit_where_it_comes_from_and_how_to_change_it(
    limit: StoreLimit, words: str
) -> None:
    assert words in limit.text()
    assert "--store-memory" in limit.text() or limit == StoreLimit(GIB)
