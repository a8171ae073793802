"""Pieces of answers."""

import pytest

from kafka_listener.core.pieces import PIECE_BYTES, Pieces


@pytest.mark.rule("KL-14")
def test_pieces_are_bounded_and_in_their_order() -> None:
    pieces = Pieces()
    answers = [b"", b"a" * PIECE_BYTES, b"b" * (3 * PIECE_BYTES + 1)]
    for answer in answers:
        pieces.add([answer[:1], memoryview(answer)[1:]])
    assert pieces.size == 4 * PIECE_BYTES + 1
    taken = []
    while pieces.size:
        taken.append(bytes(pieces.take()))
    assert [len(each) for each in taken] == [PIECE_BYTES] * 4 + [1]
    assert b"".join(taken) == b"".join(answers)
    with pytest.raises(IndexError):
        pieces.take()
