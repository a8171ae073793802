"""Error codes and messages of the node's answers, as Kafka's answers have them."""

from __future__ import annotations

import pytest

from kafka_listener.requests.refusals import (
    TRANSACTION_ABORTABLE,
    code_of,
    message_of,
    raise_refusal,
    record_code,
    text_of,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.list_groups_pb2 import ListGroupsResponse
from kip932.errors import (
    GroupAuthorizationFailedError,
    InvalidTxnStateError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    ThrottlingQuotaExceededError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)


def test_an_error_has_its_code_and_text_and_none_has_neither() -> None:
    assert (code_of(None), text_of(None)) == (0, None)
    error = UnknownTopicOrPartitionError("the topic x does not exist")
    assert (code_of(error), text_of(error)) == (3, "the topic x does not exist")


@pytest.mark.rule("KL-40")
def test_an_answer_that_refuses_all_is_raised_with_its_message_and_a_good_one_is_not() -> None:
    raise_refusal(ListGroupsResponse(error_code=ErrorCode.ERROR_CODE_NONE))
    assert message_of(ListGroupsResponse()) is None
    refused = ListGroupsResponse(error_code=ErrorCode.ERROR_CODE_GROUP_AUTHORIZATION_FAILED, error_message="not you")
    assert message_of(refused) == "not you"
    with pytest.raises(GroupAuthorizationFailedError, match="not you"):
        raise_refusal(refused)


@pytest.mark.rule("KL-40", "KL-41")
@pytest.mark.parametrize(
    ("code", "by_name", "answered"),
    [
        (0, True, 0),
        (NotLeaderOrFollowerError.code, True, NotLeaderOrFollowerError.code),
        (UnknownTopicIdError.code, True, UnknownTopicOrPartitionError.code),
        (UnknownTopicIdError.code, False, UnknownTopicIdError.code),
        (ThrottlingQuotaExceededError.code, False, KafkaStorageError.code),
        (InvalidTxnStateError.code, True, TRANSACTION_ABORTABLE),
    ],
)
def test_codes_that_clients_do_not_expect_about_records_have_others_in_their_place(
    code: int, by_name: bool, answered: int
) -> None:
    assert record_code(code, by_name=by_name) == answered
