"""What a listener serves, and its answer to ApiVersions (KL-10 to KL-13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafka_listener.core import versions
from kafka_listener.messages.apis import Api, api
from kafka_listener.messages.headers import RequestHeader
from kafka_listener.ports import Connection
from kafka_listener.requests.table import HANDLERS, Handler
from shard_runtime.rpc.table import RequestSize

_UNSUPPORTED_VERSION: Final = 35
_INVALID_REQUEST: Final = 42
#: Of SaslHandshake the one version after which the exchange has messages of its own.
_HANDSHAKE_VERSIONS: Final = range(1, 2)
#: Features whose least version is 0 are left out before this version: clients of then refuse the answer.
_ZERO_FROM: Final = 4
_FEATURES_FROM: Final = 3
_SHARE: Final = "share.version"
#: At this level of the feature each transaction has an epoch of its own, which EndTxn gives (KL-100).
_TRANSACTION: Final = "transaction.version"
_TRANSACTION_LEVEL: Final = 2


class Served(NamedTuple):
    """An API that is served: `versions`: those with an answer; `size_max`: the largest request, None for the listener's
    own limit."""

    api: Api
    versions: range
    size_max: int | None


class Offers:
    """The requests that are answered. `handlers`: all but SASL's and ApiVersions. `share_version` returns the cluster's
    `share.version`."""

    def __init__(
        self, handlers: Mapping[int, Handler] = HANDLERS, share_version: Callable[[], int] = lambda: 1
    ) -> None:
        self.api_versions: Final = api("ApiVersions")
        self.handshake: Final = api("SaslHandshake")
        self.authenticate: Final = api("SaslAuthenticate")
        self.sasl: Final = (self.handshake, self.authenticate)
        own = Handler("ApiVersions", self.api_versions.versions, self._answer)
        self.handlers: Final = {**handlers, self.api_versions.key: own}
        self._share_version = share_version
        self._served = {
            key: Served(api(row.api), versions.common(row.versions_offered, api(row.api).versions), _size_max(key))
            for key, row in self.handlers.items()
        }
        for each, served in (
            (self.handshake, _HANDSHAKE_VERSIONS),
            (self.authenticate, self.authenticate.versions),
        ):
            self._served[each.key] = Served(each, served, _size_max(each.key))
        self._ranges = versions.offered({key: each.versions for key, each in self._served.items()})

    def find(self, key: int, version: int) -> Served | None:
        """Return the API of this key, if it is served in this version."""
        found = self._served.get(key)
        return found if found is not None and version in found.versions else None

    @staticmethod
    def may_come(key: int, *, authenticated: bool) -> bool:
        """Return whether a request may come from a caller that has said who it is, or has not (KL-22)."""
        return versions.may_come_first(key, authenticated=authenticated)

    def unsupported(self, header: RequestHeader) -> Any:
        """Return the answer, in version 0, to an ApiVersions in a version that is not served; None for another API."""
        if header.key != self.api_versions.key:
            return None
        return self._response(0, _UNSUPPORTED_VERSION)

    async def _answer(self, request: Any, version: int, connection: Connection) -> Any:
        known = versions.is_known_software(
            version, getattr(request, "client_software_name", None), getattr(request, "client_software_version", None)
        )
        return self._response(version, 0) if known else self.api_versions.response(error_code=_INVALID_REQUEST)

    def _response(self, version: int, error_code: int) -> Any:
        kinds = self.api_versions.response
        response = kinds(
            error_code=error_code,
            api_keys=[
                kinds.ApiVersion(api_key=each.key, min_version=each.least, max_version=each.greatest)
                for each in self._ranges
            ],
        )
        if version >= _FEATURES_FROM:
            levels = {_SHARE: self._share_version(), _TRANSACTION: _TRANSACTION_LEVEL}
            response.finalized_features_epoch = 0
            response.finalized_features = [
                kinds.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in levels.items()
            ]
            if version >= _ZERO_FROM:
                response.supported_features = [
                    kinds.SupportedFeatureKey(name=name, min_version=0, max_version=max(level, 1))
                    for name, level in levels.items()
                ]
        return response


def _size_max(key: int) -> int | None:
    """Return the largest request of an API: as on gRPC, those without records have a smaller one (CM-91)."""
    return None if key == versions.PRODUCE else RequestSize.LISTS.value
