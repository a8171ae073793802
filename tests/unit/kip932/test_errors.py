"""Kafka's error numbers and the exceptions that carry them."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import (
    FencedError,
    KafkaError,
    NotCoordinatorError,
    RetriableError,
    UnknownServerError,
    error_class,
    error_for,
)

#: The classes in the tree that have no error code.
BRANCHES = {KafkaError, RetriableError, errors.CoordinatorError, FencedError}
#: Errors that services distinguish, although they have the same error code as their base.
FINER = {errors.InQuarantineError}
LEAVES = sorted(
    (found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, KafkaError)),
    key=lambda found: found.__name__,
)


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf not in BRANCHES | FINER])
def test_a_number_leads_to_its_class_and_has_kafkas_name(leaf: type[KafkaError]) -> None:
    assert error_class(leaf.code) is leaf
    assert ErrorCode.DESCRIPTOR.values_by_number[leaf.code].name == f"ERROR_CODE_{leaf.name}"
    assert leaf().message == leaf.__doc__, "the docstring is the message"


def test_a_finer_error_is_its_base_for_who_knows_only_the_number() -> None:
    for finer in FINER:
        assert issubclass(finer, error_class(finer.code))
        assert finer().message == finer.__doc__


def test_none_is_no_error_and_an_unknown_number_is_the_servers() -> None:
    assert error_for(0) is None
    assert type(error_for(12_345)) is UnknownServerError


def test_a_message_that_came_with_a_number_is_kept_and_an_empty_one_is_not() -> None:
    reported, untold = error_for(NotCoordinatorError.code, "ask node 3"), error_for(NotCoordinatorError.code, "")
    assert (str(reported), str(untold)) == ("ask node 3", NotCoordinatorError.__doc__)


def test_who_may_try_again_is_seen_by_the_branch() -> None:
    assert issubclass(NotCoordinatorError, RetriableError)
    assert issubclass(errors.FencedMemberEpochError, FencedError)
    assert not issubclass(FencedError, RetriableError)
