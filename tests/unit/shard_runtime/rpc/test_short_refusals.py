"""A response about many partitions repeats only a few times what would allow them, not for every partition."""

from __future__ import annotations

import pytest

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from kip932.api.v1.list_offsets_pb2 import ListOffsetsResponse
from kip932.ids import REQUEST_PARTITIONS_MAX
from kip932.remedies import ADMINISTRATOR, proposes
from shard_runtime.rpc.access import Access, Asked
from shard_runtime.rpc.short_refusals import FULL_MAX, serialized


def refusal(topic: str, *acls: Acl) -> str:
    access = Access(["User:root"])
    access.follow(frozenset(acls))
    error = access.refusal(Asked("User:bob", "::1", Operation.DESCRIBE, ResourceType.TOPIC, topic))
    assert error is not None
    return error.message


def answer(texts: dict[str, int]) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for text, partitions in texts.items():
        topic = response.topics.add(topic_id=b"t" * 16)
        for number in range(partitions):
            topic.partitions.add(partition_index=number, error_code=29, error_message=text)
    return response


def texts_of(data: bytes) -> list[str]:
    response = ListOffsetsResponse.FromString(data)
    return [each.error_message for topic in response.topics for each in topic.partitions]


@pytest.mark.asyncio
@pytest.mark.rule("CM-61")
async def test_each_text_is_there_once_in_full_and_the_rest_say_what_is_refused() -> None:
    many = answer({refusal("a"): REQUEST_PARTITIONS_MAX, refusal("b"): 2, "the disk is full": 1})
    before = many.ByteSize()
    data = serialized(many)
    assert len(data) * 3 < before
    found = texts_of(data)
    assert len(found) == REQUEST_PARTITIONS_MAX + 3
    assert found[0] == refusal("a")
    assert set(found[1:REQUEST_PARTITIONS_MAX]) == {"User:bob may not DESCRIBE TOPIC 'a'."}
    assert found[-3:] == [refusal("b"), "User:bob may not DESCRIBE TOPIC 'b'.", "the disk is full"]


@pytest.mark.asyncio
@pytest.mark.rule("CM-61")
async def test_of_many_different_ones_a_few_are_in_full() -> None:
    found = texts_of(serialized(answer({refusal(f"t{number}"): 1 for number in range(100)})))
    assert [ADMINISTRATOR in text for text in found] == [number < FULL_MAX for number in range(100)]
    assert found[-1] == "User:bob may not DESCRIBE TOPIC 't99'."


@pytest.mark.asyncio
@pytest.mark.rule("CM-61", "CM-206")
async def test_denials_are_shortened_too_and_still_say_that_they_are_denials() -> None:
    every = Acl(ResourceType.TOPIC, "*", PatternType.LITERAL, "User:bob", "*", Operation.ALL, Permission.DENY)
    found = texts_of(serialized(answer({refusal("a", every): 100})))
    assert found[0] == refusal("a", every)
    (rest,) = set(found[1:])
    assert rest == "User:bob may not DESCRIBE TOPIC 'a'. An entry denies it, whatever other entries allow."
    assert proposes(rest), "a client proposes nothing more"


@pytest.mark.asyncio
@pytest.mark.rule("CM-61")
async def test_a_few_stay_as_they_are() -> None:
    few = answer({refusal("a"): FULL_MAX})
    assert serialized(few) == few.SerializeToString()
    assert set(texts_of(serialized(few))) == {refusal("a")}
