"""Users with passwords: what is kept about them, and that the alterations of a user are made all or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1.alter_user_scram_credentials_pb2 import AlterUserScramCredentialsRequest
from kip932.api.v1.describe_user_scram_credentials_pb2 import DescribeUserScramCredentialsRequest
from kip932.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from kip932.scram import ITERATIONS_DEFAULT, ITERATIONS_MIN, SALT_BYTES, Mechanism
from tests.support.node import unique

from .hosting import Services, contract

SALTED = {Mechanism.SCRAM_SHA_256: b"p" * 32, Mechanism.SCRAM_SHA_512: b"p" * 64}
MISSING, DUPLICATE = ResourceNotFoundError.code, DuplicateResourceError.code


async def altered(services: Services, *alterations: tuple[str, int, int | None]) -> dict[str, int]:
    """Set passwords, with a number of iterations, and remove those with None; return the error code of each user."""
    request = AlterUserScramCredentialsRequest()
    for name, mechanism, iterations in alterations:
        if iterations is None:
            request.deletions.add(name=name, mechanism=mechanism)
        else:
            salted = SALTED.get(mechanism, b"p" * 32)  # type: ignore[call-overload]
            request.upsertions.add(
                name=name, mechanism=mechanism, iterations=iterations, salt=b"s" * SALT_BYTES, salted_password=salted
            )
    return {one.user: one.error_code for one in (await services.call("AlterUserScramCredentials", request)).results}


async def described(services: Services, *names: str) -> dict[str, Any]:
    """Return of each user its error code, or its mechanisms with their iterations."""
    request = DescribeUserScramCredentialsRequest()
    for name in names:
        request.users.add(name=name)
    answer = await services.call("DescribeUserScramCredentials", request)
    assert answer.error_code == 0
    return {
        one.user: one.error_code or [(each.mechanism, each.iterations) for each in one.credential_infos]
        for one in answer.results
    }


@pytest.mark.rule("CM-189")
@contract
async def test_a_password_is_set_changed_listed_and_removed(services: Services) -> None:
    ann, bob = unique("ann"), unique("bob")
    first, second = Mechanism
    assert await described(services, ann) == {ann: MISSING}
    set_both = await altered(services, (ann, second, ITERATIONS_MIN), (ann, first, ITERATIONS_MIN), (bob, first, 5_000))
    assert set_both == {ann: 0, bob: 0}
    assert await described(services, ann) == {ann: [(first, ITERATIONS_MIN), (second, ITERATIONS_MIN)]}
    assert await altered(services, (ann, first, ITERATIONS_DEFAULT)) == {ann: 0}
    everyone = await described(services)
    assert {name: everyone[name] for name in (ann, bob)} == {
        ann: [(first, ITERATIONS_DEFAULT), (second, ITERATIONS_MIN)],
        bob: [(first, 5_000)],
    }
    assert await altered(services, (ann, first, None), (ann, second, None), (bob, first, None)) == {ann: 0, bob: 0}
    assert await described(services, ann, bob) == {ann: MISSING, bob: MISSING}
    assert not {ann, bob} & (await described(services)).keys()


@pytest.mark.rule("CM-189")
@contract
async def test_the_alterations_of_a_user_are_made_all_or_none_and_of_others_anyway(services: Services) -> None:
    ann, bob = unique("ann"), unique("bob")
    first, second = Mechanism
    assert await altered(services, (ann, first, ITERATIONS_MIN)) == {ann: 0}
    both = await altered(services, (ann, first, None), (ann, second, None), (bob, first, ITERATIONS_MIN))
    assert both == {ann: MISSING, bob: 0}
    assert await altered(services, (ann, second, None), (ann, first, ITERATIONS_DEFAULT)) == {ann: MISSING}
    assert await altered(services, (ann, first, None), (ann, first, 5_000)) == {ann: DUPLICATE}
    assert await described(services, ann, bob) == {ann: [(first, ITERATIONS_MIN)], bob: [(first, ITERATIONS_MIN)]}


@pytest.mark.rule("CM-189")
@contract
async def test_what_cannot_be_a_password_is_refused(services: Services) -> None:
    ann, first = unique("ann"), Mechanism.SCRAM_SHA_256
    for iterations in (0, ITERATIONS_MIN - 1, ITERATIONS_DEFAULT + 1):
        assert await altered(services, (ann, first, iterations)) == {ann: UnacceptableCredentialError.code}
    for mechanism in (0, 3):
        assert await altered(services, (ann, mechanism, 5_000)) == {ann: UnsupportedSaslMechanismError.code}
        assert await altered(services, (ann, mechanism, None)) == {ann: UnsupportedSaslMechanismError.code}
    assert await altered(services, ("", first, 5_000)) == {"": UnacceptableCredentialError.code}
    assert await described(services, ann, ann) == {ann: DUPLICATE}
    assert await described(services, ann) == {ann: MISSING}
