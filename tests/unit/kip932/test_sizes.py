"""Numbers of bytes as text, and back."""

from __future__ import annotations

import pytest

from kip932.sizes import size_bytes, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10_189, "10 KiB"), (10_240, "10 KiB"),
        (1_048_575, "1.0 MiB"), (1_610_612_736, "1.5 GiB"), (812 << 20, "812 MiB"), (5 << 50, "5.0 PiB"),
        (5_000 << 50, "5000 PiB"),
    ],
)  # fmt: skip
def test_a_size_is_written_in_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("1048576", 1_048_576), ("512MiB", 512 << 20), ("2g", 2 << 30), ("1.5 GB", 3 << 29), ("7b", 7),
        (" 3 kib ", 3_072),
    ],
)  # fmt: skip
def test_a_size_is_read_with_or_without_a_unit(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1 MiBs", "1e9", "MiB", "50%"])
def test_any_other_text_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes, or a number with KiB, MiB or GiB"):
        size_bytes(text)
