"""The fake cluster's users: compared by the product's own rules. Their passwords are never checked."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.alter_user_scram_credentials_pb2 import AlterUserScramCredentialsResponse
from kip932.api.v1.describe_user_scram_credentials_pb2 import DescribeUserScramCredentialsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import ResourceNotFoundError
from kip932.scram import Mechanism, credential
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
        for name in [user.name for user in request.users] or sorted({user for user, _ in kept}):
            result = response.results.add(user=name)
            for (user, mechanism), found in sorted(kept.items()):
                if user == name:
                    result.credential_infos.add(mechanism=mechanism, iterations=found.iterations)
            if not result.credential_infos:
                result.error_code = ErrorCode.ValueType(ResourceNotFoundError.code)
        return response

    async def alter_user_scram_credentials(self, request: Any, context: Any) -> AlterUserScramCredentialsResponse:
        self.fake.user_requests.append(request)
        kept = self.fake.passwords
        codes: dict[str, int] = {}
        for each in (*request.deletions, *request.upsertions):
            if each.name not in codes:
                codes[each.name] = self.fake.take_error("alter_users")
        for each in request.deletions:
            if not codes[each.name] and kept.pop((each.name, each.mechanism), None) is None:
                codes[each.name] = ResourceNotFoundError.code
        for each in request.upsertions:
            if not codes[each.name]:
                kept[each.name, each.mechanism] = credential(
                    each.name, Mechanism(each.mechanism), each.iterations, each.salt, each.salted_password
                )
        response = AlterUserScramCredentialsResponse()
        for name, code in codes.items():
            response.results.add(user=name, error_code=ErrorCode.ValueType(code))
        return response
