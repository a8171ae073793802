"""Which JWTs, key sets and token files are accepted, and the errors for the others (CM-186)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from shard_runtime.rpc.tokens import (
    ContentsError,
    Policy,
    RefusedTokenError,
    check_token,
    parse_keys,
    parse_static_tokens,
    token_hash,
)

NOW = 1_800_000_000.0
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(private: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    kind: Any = RSAAlgorithm if private in (RSA, OTHER) else ECAlgorithm if private is EC else OKPAlgorithm
    made: dict[str, Any] = json.loads(kind.to_jwk(private.public_key()))
    return made | ({} if kid is None else {"kid": kid}) | more


KEYS = parse_keys(json.dumps({"keys": [jwk(RSA, "r"), jwk(EC, "e"), jwk(ED, "d"), {"kty": "oct", "k": "eA"}]}).encode())
POLICY = Policy(("jobs",), "https://issuer")


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r", **claims: Any) -> str:
    said = {"sub": "alice", "exp": NOW + 60, "aud": ["x", "jobs"], "iss": "https://issuer"} | claims
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={} if kid is None else {"kid": kid})


def by_hand(header: dict[str, Any], secret: bytes | None) -> str:
    parts = [header, {"sub": "alice", "exp": NOW + 60, "aud": "jobs", "iss": "https://issuer"}]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    signature = b"" if secret is None else hmac.digest(secret, text, "sha256")
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.mark.rule("CM-186")
@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        *((RSA, each, "r") for each in ("RS256", "RS384", "RS512", "PS256", "PS512")),
        (EC, "ES256", "e"),
        (ED, "EdDSA", "d"),
    ],
)
def test_a_signed_token_names_its_caller_until_its_end(key: Any, algorithm: str, kid: str) -> None:
    found = check_token(token(key, algorithm, kid), KEYS, POLICY, NOW)
    assert (found.name, found.ends_ms) == ("alice", int((NOW + 60 + 30) * 1000))


@pytest.mark.rule("CM-186")
def test_without_a_key_id_the_only_key_that_fits_is_used() -> None:
    assert check_token(token(kid=None), KEYS, POLICY, NOW).name == "alice"
    two = parse_keys(json.dumps({"keys": [jwk(RSA, "1"), jwk(OTHER, "2")]}).encode())
    with pytest.raises(RefusedTokenError, match="2 keys of this node fit"):
        check_token(token(kid=None), two, POLICY, NOW)


PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.rule("CM-186")
@pytest.mark.parametrize(
    ("made", "reason", "said"),
    [
        (token(OTHER), "signature", "signature"),
        (token(aud="others"), "audience", "'others'"),
        (token(aud=None), "audience", "aud"),
        (token(iss="https://evil"), "issuer", "https://evil"),
        (token(exp=None), "no end", "exp"),
        (token(exp=NOW - 31), "expired", "the token expired at 2027-01-15 07:59:29 UTC"),
        (token(nbf=NOW + 31), "not yet valid", "check the clocks"),
        (token(sub=None), "no name", "claim sub"),
        (token(sub=""), "no name", "claim sub"),
        (token(sub="a" * 250), "no name", "249"),
        (token(kid="new"), "unknown key", "'new'"),
        (token(EC, "ES256", "r"), "algorithm", "'r'"),
        (by_hand({"alg": "none", "kid": "r"}, None), "algorithm", "'none'"),
        (by_hand({"alg": "HS256", "kid": "r"}, PUBLIC), "algorithm", "'HS256'"),
        (by_hand({"alg": "RS256", "kid": "r"}, PUBLIC), "signature", "signature"),
        (by_hand({"alg": ["RS256"], "kid": "r"}, None), "algorithm", "RS256"),
        ("", "malformed", "not a JWT"),
        ("a.b.c", "malformed", "not a JWT"),
        ("a" * 10_000, "malformed", "not a JWT"),
        ("é.b.c", "malformed", "not a JWT"),
    ],
)
def test_a_token_that_is_not_accepted_hears_which_check_failed(made: str, reason: str, said: str) -> None:
    with pytest.raises(RefusedTokenError) as refused:
        check_token(made, KEYS, POLICY, NOW)
    assert refused.value.reason == reason
    assert said in str(refused.value)
    assert not made or made not in str(refused.value)


@pytest.mark.rule("CM-186")
@pytest.mark.parametrize("end", ["soon", True, float("nan"), float("inf"), [1]])
def test_an_end_that_is_no_time_is_refused(end: object) -> None:
    text = json.dumps({"sub": "alice", "exp": end, "aud": "jobs", "iss": "https://issuer"}).encode()
    signed = jwt.PyJWS().encode(text, RSA, "RS256", headers={"kid": "r"})
    with pytest.raises(RefusedTokenError, match="exp is not a number"):
        check_token(signed, KEYS, POLICY, NOW)


@pytest.mark.rule("CM-186")
def test_clocks_may_differ_by_the_skew() -> None:
    assert check_token(token(exp=NOW - 29, nbf=NOW + 29), KEYS, POLICY, NOW).name == "alice"
    with pytest.raises(RefusedTokenError):
        check_token(token(exp=NOW), KEYS, Policy(skew_s=0), NOW)


@pytest.mark.rule("CM-186")
@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"garbage", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", 'without a list "keys"'),
        (b'{"keys": []}', "it is empty"),
        (json.dumps({"keys": [jwk(RSA, "r", use="enc")]}).encode(), "not for signatures"),
        (json.dumps({"keys": [jwk(RSA, "r", use=["sig"])]}).encode(), "its use is not a string"),
        (json.dumps({"keys": [jwk(RSA, "r") | {"kty": "EC", "crv": {}}]}).encode(), "its crv is not a string"),
        (json.dumps({"keys": [jwk(RSA, "r", alg="HS256")]}).encode(), "its algorithm"),
        (json.dumps({"keys": [jwk(RSA, "r"), jwk(OTHER, "r")]}).encode(), "two keys"),
        (json.dumps({"keys": [jwk(RSA, "r", n="!")]}).encode(), "do not form a key"),
        (json.dumps({"keys": [{}] * 101}).encode(), "at most 100"),
    ],
)
def test_a_key_set_that_cannot_be_used_says_why(contents: bytes, said: str) -> None:
    with pytest.raises(ContentsError) as refused:
        parse_keys(contents)
    assert said in str(refused.value)


@pytest.mark.rule("CM-186")
def test_a_file_of_tokens_has_plain_ones_and_hashes() -> None:
    hashed = hashlib.sha256(b"two").hexdigest()
    names = parse_static_tokens(f"# ours\n\nUser:alice one\n User:bob\tsha256:{hashed} \n".encode(), 0o640)
    assert names == {token_hash("one"): "alice", token_hash("two"): "bob"}


@pytest.mark.rule("CM-186")
@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("User:a secret", 0o644, "others may read the file"),
        ("User:a sha256:" + "0" * 64, 0o622, "others may change it"),
        ("a secret", 0o600, "line 1 is not User:NAME"),
        ("User:a", 0o600, "line 1 is not User:NAME"),
        ("User:a sha256:secret", 0o600, "no token of letters"),
        ("User:a secret\nUser:b secret", 0o600, "line 2 has the token of another user"),
        ("\udcff", 0o600, "UTF-8"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_shows_none_of_them(text: str, mode: int, said: str) -> None:
    with pytest.raises(ContentsError) as refused:
        parse_static_tokens(text.encode("utf-8", "surrogateescape"), mode)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
