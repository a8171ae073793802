"""The fake cluster's users: compared by the product's own rules. Their passwords are never checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kip932.api.v1.alter_user_scram_credentials_pb2 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kip932.api.v1.describe_user_scram_credentials_pb2 import DescribeUserScramCredentialsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from kip932.scram import Mechanism, credential, refused_terms, refused_user
from tests.support.fake_cluster.state import FakeState


class Users:
    """DescribeUserScramCredentials and AlterUserScramCredentials. Planned errors: "describe_users" for the next call,
    "alter_users" for the next user."""

    fake: FakeState

    async def describe_user_scram_credentials(self, request: Any, context: Any) -> DescribeUserScramCredentialsResponse:
        self.fake.user_requests.append(request)
        if code := self.fake.take_error("describe_users"):
            return DescribeUserScramCredentialsResponse(error_code=code)
        response = DescribeUserScramCredentialsResponse()
        kept = self.fake.passwords
        named = Counter(user.name for user in request.users) or dict.fromkeys(sorted({user for user, _ in kept}), 1)
        for name, times in named.items():
            result = response.results.add(user=name)
            if times > 1:
                result.error_code = ErrorCode.ValueType(DuplicateResourceError.code)
                continue
            for (user, mechanism), found in sorted(kept.items()):
                if user == name:
                    result.credential_infos.add(mechanism=mechanism, iterations=found.iterations)
            if not result.credential_infos:
                result.error_code = ErrorCode.ValueType(ResourceNotFoundError.code)
        return response

    async def alter_user_scram_credentials(self, request: Any, context: Any) -> AlterUserScramCredentialsResponse:
        self.fake.user_requests.append(request)
        by_user: dict[str, list[Any]] = {}
        for each in (*request.deletions, *request.upsertions):
            by_user.setdefault(each.name, []).append(each)
        response = AlterUserScramCredentialsResponse()
        for name, wanted in by_user.items():
            code = self.fake.take_error("alter_users") or self._refused(wanted)
            if not code:
                self._alter(wanted)
            response.results.add(user=name, error_code=ErrorCode.ValueType(code))
        return response

    def _refused(self, wanted: Sequence[Any]) -> int:
        """Return why none of a user's alterations is made, the first reason found; 0 if all are."""
        seen: set[int] = set()
        for each in wanted:
            if each.mechanism not in set(Mechanism):
                return UnsupportedSaslMechanismError.code
            if each.mechanism in seen:
                return DuplicateResourceError.code
            seen.add(each.mechanism)
            if _sets(each) and (
                refused_user(each.name)
                or refused_terms(Mechanism(each.mechanism), each.iterations, each.salt, each.salted_password)
            ):
                return UnacceptableCredentialError.code
        removed = ((each.name, each.mechanism) for each in wanted if not _sets(each))
        return 0 if all(key in self.fake.passwords for key in removed) else ResourceNotFoundError.code

    def _alter(self, wanted: Sequence[Any]) -> None:
        for each in wanted:
            if _sets(each):
                self.fake.passwords[each.name, each.mechanism] = credential(
                    each.name, Mechanism(each.mechanism), each.iterations, each.salt, each.salted_password
                )
            else:
                del self.fake.passwords[each.name, each.mechanism]


def _sets(alteration: Any) -> bool:
    return isinstance(alteration, AlterUserScramCredentialsRequest.Upsertion)
