"""What clients say with PLAIN and OAUTHBEARER."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.core.sasl import (
    MESSAGE_MAX,
    MalformedCredentialsError,
    Password,
    mechanisms,
    read_plain,
    read_token,
)


@pytest.mark.rule("KL-21")
def test_passwords_and_tokens_are_shown_over_tls_and_on_this_machine_alone() -> None:
    assert mechanisms(secrets=True, tokens=True) == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    assert mechanisms(secrets=True, tokens=False) == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert mechanisms(secrets=False, tokens=True) == ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.rule("KL-21")
def test_plain_names_a_user_and_its_password() -> None:
    assert read_plain(b"\0alice\0s=e,c") == Password("alice", "s=e,c")
    assert read_plain("alice\0alice\0pässword".encode()) == Password("alice", "pässword")


@pytest.mark.rule("KL-21")
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"alice\0secret", "2 parts"),
        (b"\0alice\0secret\0", "4 parts"),
        (b"\0\0secret", "no name"),
        (b"\0alice\0", "no password"),
        (b"bob\0alice\0secret", "another user"),
        (b"\0al:ice\0secret", "colon"),
        (b"\0alice\0\xff", "UTF-8"),
        (bytes(MESSAGE_MAX + 1), "at most"),
    ],
)
def test_what_is_not_plain_is_refused_without_the_password(data: bytes, says: str) -> None:
    with pytest.raises(MalformedCredentialsError, match=says) as refused:
        read_plain(data)
    assert "secret" not in str(refused.value)


@pytest.mark.rule("KL-21")
def test_a_token_is_in_the_first_message() -> None:
    assert read_token(b"n,,\x01auth=Bearer a.b.c\x01\x01") == "a.b.c"
    assert read_token(b"n,a=alice,\x01host=h\x01auth=bearer  t \x01\x01") == "t"


@pytest.mark.rule("KL-21")
@pytest.mark.parametrize(
    "data", [b"", b"n,,", b"p=x,,\x01auth=Bearer t\x01\x01", b"n,,\x01auth=Basic t\x01\x01", b"\xff"]
)
def test_a_message_without_a_token_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedCredentialsError):
        read_token(data)


@pytest.mark.rule("KL-21")
@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_plain, read_token):
        with contextlib.suppress(MalformedCredentialsError):
            read(data)
