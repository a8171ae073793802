"""The fake cluster's access control entries: compared by the product's own rules. They decide nothing."""

from __future__ import annotations

from typing import Any, Final

from kip932.acls import Acl, AclFilter, refused_binding
from kip932.api.v1.acl_pb2 import AclBinding
from kip932.api.v1.create_acls_pb2 import CreateAclsResponse
from kip932.api.v1.delete_acls_pb2 import DeleteAclsResponse
from kip932.api.v1.describe_acls_pb2 import DescribeAclsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from tests.support.fake_cluster.state import FakeState

INVALID_REQUEST: Final = 42


class Acls:
    """CreateAcls, DescribeAcls and DeleteAcls. Planned errors: "create_acls" for the next entry, "delete_acls" for the
    next filter, "describe_acls" for the next call."""

    fake: FakeState

    async def create_acls(self, request: Any, context: Any) -> CreateAclsResponse:
        self.fake.acl_requests.append(request)
        response = CreateAclsResponse()
        for creation in request.creations:
            acl = Acl(*(getattr(creation, name) for name in Acl._fields))
            why, code = refused_binding(acl), self.fake.take_error("create_acls")
            if why:
                response.results.add(error_code=ErrorCode.ValueType(INVALID_REQUEST), error_message=why)
                continue
            response.results.add(error_code=code)
            if not code:
                self.fake.acls.add(acl)
        return response

    async def describe_acls(self, request: Any, context: Any) -> DescribeAclsResponse:
        self.fake.acl_requests.append(request)
        if code := self.fake.take_error("describe_acls"):
            return DescribeAclsResponse(error_code=code)
        wanted = _filter(request.filter)
        return DescribeAclsResponse(acls=[_binding(acl) for acl in self.fake.acls if wanted.matches(acl)])

    async def delete_acls(self, request: Any, context: Any) -> DeleteAclsResponse:
        self.fake.acl_requests.append(request)
        response = DeleteAclsResponse()
        for given in request.filters:
            if code := self.fake.take_error("delete_acls"):
                response.filter_results.add(error_code=code)
                continue
            wanted = _filter(given)
            found = [acl for acl in self.fake.acls if wanted.matches(acl)]
            response.filter_results.add(matching_acls=map(_binding, found))
            self.fake.acls.difference_update(found)
        return response


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(**acl._asdict())


def _filter(given: Any) -> AclFilter:
    """Return a request's filter; an absent field matches everything."""
    values = {name: getattr(given, name) for name in AclFilter._fields}
    for name in ("resource_name", "principal", "host"):
        if not given.HasField(name):
            values[name] = None
    return AclFilter(**values)
