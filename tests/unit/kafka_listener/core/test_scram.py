"""The server's side of SCRAM, beside a client's written from the RFC."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.core.scram import MalformedExchangeError, Scram, WrongProofError, read_first
from kip932.scram import ITERATIONS_MAX, Mechanism, ScramCredential, credential, salted_password
from tests.support.scram_client import proof

SALT = b"0123456789abcdef"
ITERATIONS = 4_096


def kept(user: str, mechanism: Mechanism, password: str = "secret") -> ScramCredential:
    return credential(user, mechanism, ITERATIONS, SALT, salted_password(mechanism, password, SALT, ITERATIONS))


def exchange(mechanism: Mechanism, *users: str) -> Scram:
    known = {user: kept(user, mechanism) for user in users}
    return Scram(mechanism, lambda user, used: known.get(user) if used is mechanism else None, "server", b"key" * 10)


@pytest.mark.rule("KL-24")
@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize(("user", "written"), [("alice", "alice"), ("a,b=c", "a=2Cb=3Dc")])
def test_a_user_proves_its_password(mechanism: Mechanism, user: str, written: str) -> None:
    scram = exchange(mechanism, user)
    first = f"n={written},r=client"
    server_first = scram.first(f"n,,{first}".encode()).decode()
    last, expected = proof(mechanism, "secret", first, server_first)
    assert scram.final(last.encode()).decode() == expected
    assert scram.user == user


@pytest.mark.rule("KL-24")
@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_wrong_password_and_an_unknown_user_fail_at_the_proof(mechanism: Mechanism) -> None:
    for user, password in (("alice", "Secret"), ("bob", "secret")):
        scram = exchange(mechanism, "alice")
        first = f"n={user},r=client"
        server_first = scram.first(f"n,,{first}".encode()).decode()
        with pytest.raises(WrongProofError):
            scram.final(proof(mechanism, password, first, server_first)[0].encode())


@pytest.mark.rule("KL-24")
def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    firsts = [exchange(Mechanism.SCRAM_SHA_256).first(f"n,,n={user},r=c".encode()) for user in ("x", "x", "y")]
    assert firsts[0] == firsts[1] != firsts[2]
    assert f"i={ITERATIONS_MAX}".encode() in firsts[0]


@pytest.mark.rule("KL-24")
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff", "UTF-8"),
        (b"p=tls-unique,,n=a,r=c", "channel"),
        (b"n,n=a", "no header|begin"),
        (b"n,,r=c,n=a", "begin"),
        (b"n,,n=a", "begin"),
        (b"n,,m=x,n=a,r=c", "extension"),
        (b"n,,n=a,r=c,tokenauth=true", "delegation"),
        (b"n,,n=,r=c", "0 characters"),
        (b"n,,n=a=2X,r=c", "equals sign"),
        (b"n,,n=a,r=" + b"c" * 257, "nonce"),
        (b"n,,n=a,r=", "nonce"),
        (b"n,,n=a,n=b,r=c", "twice"),
        (b"n,a=bob,n=a,r=c", "another user"),
    ],
)
def test_a_first_message_that_is_not_one_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(MalformedExchangeError, match=says):
        read_first(data)


@pytest.mark.rule("KL-24")
def test_a_last_message_of_another_exchange_is_refused() -> None:
    mechanism = Mechanism.SCRAM_SHA_256
    first = "n=alice,r=client"
    for wrong in (
        "c=biws,r=clientother,p=AAAA",
        "c=AAAA,r=clientserver,p=AAAA",
        "c=biws,r=clientserver,p=AAAA",
        "x",
        "",
    ):
        scram = exchange(mechanism, "alice")
        scram.first(f"n,,{first}".encode())
        with pytest.raises(MalformedExchangeError):
            scram.final(wrong.encode())


@pytest.mark.rule("KL-24")
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_refused(first: bytes, last: bytes) -> None:
    scram = exchange(Mechanism.SCRAM_SHA_256, "alice")
    accepted = b""
    with suppress(MalformedExchangeError, WrongProofError):
        scram.first(b"n,,n=alice,r=c" + first)
        accepted = scram.final(b"c=biws,r=cserver,p=" + last)
    assert accepted == b""
