"""Passwords in SCRAM form: the RFCs' own examples, what can be a password or a name, and what is kept."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    PASSWORD_MAX,
    USER_MAX,
    Mechanism,
    RefusedPasswordError,
    ScramCredential,
    credential,
    matches,
    mechanism_text,
    prepared,
    refused_iterations,
    refused_terms,
    refused_user,
    salted_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def made(password: str, mechanism: Mechanism = Mechanism.SCRAM_SHA_256, iterations: int = 4_096) -> ScramCredential:
    salted = salted_password(mechanism, prepared(password), SALT, iterations)
    return credential("user", mechanism, iterations, SALT, salted)


@pytest.mark.rule("CM-189")
def test_the_exchange_of_rfc_7677_fits_what_is_kept() -> None:
    kept = made("pencil")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = ",".join((
        "n=user,r=rOprNGfwEbeRWgbNEkqO",
        f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"c=biws,r={nonce}",
    )).encode()  # fmt: skip
    signature = hmac.digest(kept.server_key, exchange, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    mask = hmac.digest(kept.stored_key, exchange, "sha256")
    client_key = bytes(one ^ other for one, other in zip(proof, mask, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key


@pytest.mark.rule("CM-189")
@pytest.mark.parametrize("mechanism", Mechanism)
def test_what_is_kept_is_that_of_rfc_5802_computed_step_by_step(mechanism: Mechanism) -> None:
    name = mechanism.text.removeprefix("SCRAM-").replace("-", "").lower()
    block = hmac.new(b"pencil", SALT + b"\0\0\0\1", name).digest()
    salted = int.from_bytes(block)
    for _ in range(4_095):
        block = hmac.new(b"pencil", block, name).digest()
        salted ^= int.from_bytes(block)
    expected = salted.to_bytes(mechanism.size)
    assert salted_password(mechanism, "pencil", SALT, 4_096) == expected
    client_key = hmac.new(expected, b"Client Key", name).digest()
    kept = credential("u", mechanism, 4_096, SALT, expected)
    assert kept.stored_key == hashlib.new(name, client_key).digest()
    assert kept.server_key == hmac.new(expected, b"Server Key", name).digest()
    assert (kept.user, kept.mechanism, kept.iterations, kept.salt) == ("u", mechanism, 4_096, SALT)


@pytest.mark.rule("CM-189")
@pytest.mark.parametrize(
    ("given_text", "normal"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b"),
     ("e\u0301", "é"), (" a ", " a "), ("\u0627\u0628", "\u0627\u0628")],
)  # fmt: skip
def test_passwords_are_normalised_as_rfc_4013_shows(given_text: str, normal: str) -> None:
    assert prepared(given_text) == normal


@pytest.mark.rule("CM-189")
@pytest.mark.parametrize(
    ("text", "said"),
    [("\x07secret", "RFC 4013"), ("\u0627\u0031", "RFC 4013"), ("a\u0627", "RFC 4013"), ("\U0001f600", "RFC 4013"),
     ("\ud800", "RFC 4013"), ("a\nb", "RFC 4013"), ("", "empty"), ("\u00ad", "empty"),
     ("x" * (PASSWORD_MAX + 1), "1025 characters; at most 1024")],
)  # fmt: skip
def test_what_cannot_be_a_password_is_refused_without_being_shown(text: str, said: str) -> None:
    with pytest.raises(RefusedPasswordError, match=said) as caught:
        prepared(text)
    assert "secret" not in str(caught.value)
    assert "xx" not in str(caught.value)


@pytest.mark.rule("CM-189")
@given(st.text(max_size=30))
@settings(max_examples=200)
def test_a_normalised_password_stays_as_it_is(text: str) -> None:
    try:
        normal = prepared(text)
    except RefusedPasswordError:
        return
    assert prepared(normal) == normal


@pytest.mark.rule("CM-189", "CM-190")
@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12), st.sampled_from(Mechanism))
@settings(max_examples=40, deadline=None)
def test_a_password_matches_what_is_kept_of_it_and_no_other_does(one: str, other: str, mechanism: Mechanism) -> None:
    try:
        first, second = prepared(one), prepared(other)
    except RefusedPasswordError:
        return
    kept = made(one, mechanism, 3)
    assert matches(kept, salted_password(mechanism, first, SALT, 3))
    assert matches(kept, salted_password(mechanism, second, SALT, 3)) == (first == second)


@pytest.mark.rule("CM-189")
def test_nothing_that_helps_a_guess_is_in_the_text_of_a_value() -> None:
    kept = made("pencil")
    assert repr(kept) == "ScramCredential(user='user', mechanism=<Mechanism.SCRAM_SHA_256: 1>, iterations=4096)"


@pytest.mark.rule("CM-189")
@pytest.mark.parametrize(
    ("name", "said"),
    [("", "is empty"), ("x" * (USER_MAX + 1), "286 characters; at most 285"), ("*", "use User:* for other callers"),
     ("ANONYMOUS", "use User:ANONYMOUS for other callers"), ("a:b", "has a colon"), ("User:alice", "; write alice"),
     ("a\tb", "not shown"), ("e\u0301", "normal form"), (" a", "spaces at an end"), ("\u2168", "look alike"),
     ("\ud800", "not shown"), ("a\u200bb", "not shown")],
)  # fmt: skip
def test_what_cannot_be_a_name_is_refused_with_the_reason(name: str, said: str) -> None:
    assert said in refused_user(name)


@pytest.mark.rule("CM-189")
@pytest.mark.parametrize("name", ["alice", "x" * USER_MAX, "a b", "é", "Anonymous", "a,b=c", "alice@example.com"])
def test_other_names_are_names(name: str) -> None:
    assert refused_user(name) == ""


@pytest.mark.rule("CM-189")
def test_weak_terms_are_refused() -> None:
    assert [bool(refused_iterations(each)) for each in (-1, 0, 4_095, 4_096, 16_384, 16_385)] == [1, 1, 1, 0, 0, 1]
    assert ITERATIONS_DEFAULT == ITERATIONS_MAX == 16_384
    one, other = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
    assert refused_terms(one, 4_095, SALT, bytes(32)) == "the number of iterations is 4095; expected 4096 to 16384"
    assert refused_terms(one, 4_096, bytes(7), bytes(32)) == "the salt has 7 bytes; expected 8 to 64 random ones"
    assert refused_terms(one, 4_096, bytes(65), bytes(32)).startswith("the salt has 65 bytes")
    assert (
        refused_terms(other, 4_096, SALT, bytes(32)) == "the salted password has 32 bytes; with SCRAM-SHA-512 it has 64"
    )
    assert refused_terms(one, 4_096, bytes(8), bytes(32)) == refused_terms(other, 16_384, bytes(64), bytes(64)) == ""


def test_a_mechanism_has_its_name_in_sasl() -> None:
    assert [mechanism_text(each) for each in (1, 2, 9)] == ["SCRAM-SHA-256", "SCRAM-SHA-512", "mechanism 9"]
