"""The fake cluster's quotas of clients: checked by the product's own rules. They limit nothing."""

from __future__ import annotations

from typing import Any, Final

from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasResponse
from kip932.api.v1.describe_client_quotas_pb2 import DescribeClientQuotasResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.quotas import QuotaEntity, entity_of, refused_key, refused_value
from tests.support.fake_cluster.state import FakeState

INVALID_REQUEST: Final = 42


class ClientQuotas:
    """AlterClientQuotas and DescribeClientQuotas. Planned errors: "alter_client_quotas" for the next entity,
    "describe_client_quotas" for the next call."""

    fake: FakeState

    async def alter_client_quotas(self, request: Any, context: Any) -> AlterClientQuotasResponse:
        self.fake.quota_requests.append(request)
        response = AlterClientQuotasResponse()
        for entry in request.entries:
            entity = entity_of((one.entity_type, one.entity_name or None) for one in entry.entity)
            wrong = entity if isinstance(entity, str) else ""
            for op in entry.ops:
                wrong = wrong or refused_key(op.key) or ("" if op.remove else refused_value(op.key, op.value))
            code = INVALID_REQUEST if wrong else self.fake.take_error("alter_client_quotas")
            response.entries.add(entity=entry.entity, error_code=ErrorCode.ValueType(code), error_message=wrong or None)
            if not code and isinstance(entity, QuotaEntity) and not request.validate_only:
                values = self.fake.quotas.setdefault(entity, {})
                for op in entry.ops:
                    values.pop(op.key, None)
                    if not op.remove:
                        values[op.key] = op.value
                if not values:
                    del self.fake.quotas[entity]
        return response

    async def describe_client_quotas(self, request: Any, context: Any) -> DescribeClientQuotasResponse:
        self.fake.quota_requests.append(request)
        if code := self.fake.take_error("describe_client_quotas"):
            return DescribeClientQuotasResponse(error_code=code)
        response = DescribeClientQuotasResponse()
        for entity, values in self.fake.quotas.items():
            entry = response.entries.add()
            for kind, name in entity.parts:
                entry.entity.add(entity_type=kind, entity_name=name)
            for key, value in values.items():
                entry.values.add(key=key, value=value)
        return response
