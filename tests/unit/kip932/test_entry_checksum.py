"""The key at the front of a coordinator's record, which says what the entry belongs to, and its checksum ("proof")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.entry_checksum import checksum, damage, intact_check, key_of, key_proof, proves_key
from kip932.records.v1.group_log_pb2 import GroupRecord
from kip932.records.v1.owner_log_pb2 import ClaimEntry, NoOpEntry
from kip932.records.v1.share_state_log_pb2 import ShareStateRecord

STREAM = "{sgs:1}:log"


@pytest.mark.rule("CM-106")
@pytest.mark.parametrize("version", [0, 1, 300, 2**31 - 1])
@pytest.mark.parametrize("length", [0, 1, 127, 200, 20_000])
def test_the_key_stands_at_the_front_of_the_record(version: int, length: int) -> None:
    group = "g" * length
    state = ShareStateRecord(record_version=version, append_time_ms=5)
    state.key.group_id, state.key.topic_id, state.key.partition = group, bytes(16), 7
    assert key_of(state.SerializeToString()) == state.key.SerializeToString()
    member = GroupRecord(record_version=version, key=GroupRecord.Key(group_id=group, member_id="m"), reason="left")
    assert key_of(member.SerializeToString()) == member.key.SerializeToString()


@pytest.mark.rule("CM-106")
def test_claims_and_no_ops_have_no_key() -> None:
    assert key_of(NoOpEntry(append_time_ms=1).SerializeToString()) == b""
    assert key_of(ClaimEntry(append_time_ms=1, node_id=2, nonce="n").SerializeToString()) == b""


@given(st.binary(max_size=30))
def test_any_bytes_have_some_key_or_none(data: bytes) -> None:
    assert key_of(data) in data
    assert key_of(b"\x08\x80\x80" + data) in data


@pytest.mark.rule("CM-106")
def test_a_proof_is_of_one_key_at_one_place() -> None:
    proof = key_proof(STREAM, (5, 1), b"key")
    assert len(proof) == 4
    assert proves_key(STREAM, (5, 1), b"key", proof)
    assert not proves_key(STREAM, (5, 1), b"kez", proof)
    assert not proves_key(STREAM, (5, 2), b"key", proof)
    assert not proves_key("{sgs:2}:log", (5, 1), b"key", proof)
    assert not proves_key(STREAM, (5, 1), b"key", b"")


@given(st.binary(max_size=40), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.data())
@pytest.mark.rule("CM-100")
def test_the_check_of_many_entries_says_what_the_check_of_one_says(
    record: bytes, epoch: int, seq: int, data: st.DataObject
) -> None:
    proof = checksum(STREAM, (epoch, seq), "U", record)
    intact = intact_check(STREAM, "U")
    assert intact((epoch, seq), record, proof)
    other_record = data.draw(st.binary(max_size=40))
    other_proof = data.draw(st.sampled_from([proof, b"", proof[:3], proof + bytes(4), b"\0\0\0\0"]))
    other_id = data.draw(st.sampled_from([(epoch, seq), (seq, epoch), (epoch, seq ^ 1)]))
    for kind in ("U", "S"):
        wrong = damage(STREAM, other_id, kind, other_record, batch=b"", found=other_proof)
        assert intact_check(STREAM, kind)(other_id, other_record, other_proof) == (not wrong)
    assert not intact_check("{sgs:2}:log", "U")((epoch, seq), record, proof)
