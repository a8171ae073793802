"""Administration of users and their passwords (CL-159, CM-189): set, remove, list. Any node answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence

from kip932.api.v1.alter_user_scram_credentials_pb2 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kip932.api.v1.describe_user_scram_credentials_pb2 import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kip932.errors import KafkaError, NetworkError, error_for
from kip932.scram import (
    SALT_BYTES,
    Mechanism,
    RefusedPasswordError,
    prepared,
    refused_iterations,
    refused_user,
    salted_password,
)
from sharegroups import arguments
from sharegroups.admin_values import ScramCredentialInfo, UserScramCredentialDeletion, UserScramCredentialUpsertion
from sharegroups.config import Config
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import until_answered
from sharegroups.connection.security import plaintext_refusal
from sharegroups.errors import ConfigError

_SET = 'UserScramCredentialUpsertion("alice", password)'


class UserAdmin:
    """The part of the admin client for users."""

    _cluster: Cluster
    _config: Config
    _own_transport: bool
    _timeout_s: float

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo] | KafkaError]:
        """Return the users with the mechanisms and iterations of their passwords; ResourceNotFoundError for a user that
        does not exist. Without `users`, all of them, sorted (CL-159). At most 1,000 can be named.

        Raises KafkaError: ClusterAuthorizationFailedError for a caller that may not list them, RequestTimedOutError.
        """
        call = "describe_user_scram_credentials"
        names: list[str] | None = None
        if users is not None:
            names = list(dict.fromkeys(arguments.items(call, users, "names", str, f'{call}(["alice"])')))
            if not names:
                return {}
        request = DescribeUserScramCredentialsRequest()
        for name in names or ():
            request.users.add(name=name)

        async def ask() -> DescribeUserScramCredentialsResponse:
            one_s = min(self._timeout_s, self._cluster.timeout_s)
            answer = await self._cluster.ask_any(wire.DESCRIBE_USERS, request, one_s)
            if error := error_for(answer.error_code, answer.error_message):
                raise error
            return answer

        answer = await until_answered(self._cluster, "DescribeUserScramCredentials", self._timeout_s, ask)
        if names is not None:
            _require_these(call, names, [result.user for result in answer.results])
        return {
            result.user: error_for(result.error_code, result.error_message)
            or [ScramCredentialInfo(_known(info.mechanism), info.iterations) for info in result.credential_infos]
            for result in answer.results
        }

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> dict[str, KafkaError | None]:
        """Set and remove users' passwords, at most 1,000 in one request (CL-159). Returns the error of each user, or
        None: then all alterations of that user are stored.

        Passwords are normalised (SASLprep) and hashed here, with a new salt each; they are not sent. If a response is
        lost, the request is repeated, and a deletion that the first attempt made then returns ResourceNotFoundError.

        Raises ValueError for an invalid name or password; ConfigError where a password would be sent without
        TLS to another machine (CL-161); and KafkaError: after a RequestTimedOutError the passwords may or may not be
        altered.
        """
        call = "alter_user_scram_credentials"
        kinds = (UserScramCredentialUpsertion, UserScramCredentialDeletion)
        wanted = arguments.items(call, alterations, kinds[0].__name__, kinds, f"{call}([{_SET}])")
        for each in wanted:
            _check(call, each)
        if not wanted:
            return {}
        request = await asyncio.to_thread(_request, wanted)
        one_s = min(self._timeout_s, self._cluster.timeout_s)

        async def ask() -> AlterUserScramCredentialsResponse:
            if request.upsertions and self._own_transport:
                self._check_path()
            return await self._cluster.call_any(wire.ALTER_USERS, request, one_s)

        answer = await until_answered(self._cluster, wire.ALTER_USERS.name, self._timeout_s, ask)
        _require_these(call, [each.user for each in wanted], [result.user for result in answer.results])
        return {result.user: error_for(result.error_code, result.error_message) for result in answer.results}

    def _check_path(self) -> None:
        """Raise ConfigError if the next call could take a password to another machine without TLS."""
        if (refusal := plaintext_refusal(self._config, "a salted password")) is None:
            return
        for address in self._cluster.addresses():
            if why := refusal(address):
                raise ConfigError(why)


def _check(call: str, wanted: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    """Raise ValueError for a field of the wrong type (CL-89), and for what every node would refuse."""
    kind = type(wanted).__name__
    arguments.text(call, f"{kind}.user", wanted.user)
    if wanted.mechanism not in set(Mechanism):
        expected = " or ".join(f"Mechanism.{each.name}" for each in Mechanism)
        raise arguments.refusal(call, f"{kind}.mechanism", wanted.mechanism, expected)
    if not isinstance(wanted, UserScramCredentialUpsertion):
        return
    arguments.whole(call, f"{kind}.iterations", wanted.iterations)
    if not isinstance(wanted.password, str):  # it is not shown
        raise ValueError(f"{call}: {kind}.password is a {type(wanted.password).__name__}; expected text")
    if refused := refused_user(wanted.user) or refused_iterations(wanted.iterations):
        raise ValueError(f"{call}: {refused}")
    try:
        prepared(wanted.password)
    except RefusedPasswordError as error:
        raise ValueError(f"{call}: {error}") from None


def _request(
    wanted: Sequence[UserScramCredentialUpsertion | UserScramCredentialDeletion],
) -> AlterUserScramCredentialsRequest:
    """Return the request, with passwords salted and hashed. It takes about ten milliseconds for each password."""
    request = AlterUserScramCredentialsRequest()
    for each in wanted:
        if isinstance(each, UserScramCredentialDeletion):
            request.deletions.add(name=each.user, mechanism=each.mechanism)
            continue
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(Mechanism(each.mechanism), prepared(each.password), salt, each.iterations)
        request.upsertions.add(
            name=each.user,
            mechanism=each.mechanism,
            iterations=each.iterations,
            salt=salt,
            salted_password=salted,
        )
    return request


def _require_these(call: str, wanted: Iterable[str], found: Sequence[str]) -> None:
    """Raise NetworkError unless a response has one result for each user of its request."""
    if sorted(found) != sorted(set(wanted)):
        raise NetworkError(f"the answer to {call} has results for {len(found)} users, other ones than were asked for")


def _known(number: int) -> int:
    return Mechanism(number) if number in set(Mechanism) else number
