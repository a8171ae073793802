"""The files that a client's TLS settings name are checked when it is made, and what cannot be used later changes
nothing (CM-60)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from share_node.certs import Authority
from sharegroups.config import ADMIN, Config
from sharegroups.connection import security
from sharegroups.connection.security import transport_for
from sharegroups.errors import ConfigError

AUTHORITY = Authority.made()
ALICE = AUTHORITY.issue("alice")
BOB = AUTHORITY.issue("bob")


def config_in(folder: Path) -> Config:
    for name, data in (("ca.crt", AUTHORITY.certificate), ("alice.crt", ALICE[0]), ("alice.key", ALICE[1])):
        (folder / name).write_bytes(data)
    return Config(
        ADMIN,
        {
            "bootstrap.servers": "node.example:7932",
            "security.protocol": "SSL",
            "ssl.ca.location": str(folder / "ca.crt"),
            "ssl.certificate.location": str(folder / "alice.crt"),
            "ssl.key.location": str(folder / "alice.key"),
        },
    )


def _encrypted() -> bytes:
    key = load_pem_private_key(ALICE[1], None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "ca.crt").write_bytes(ALICE[1]), r"ssl.ca.location is '.*ca.crt', which has no cert"),
        (lambda folder: (folder / "alice.crt").write_bytes(ALICE[1]), r"cannot be used together .*; expected a certif"),
        (
            lambda folder: (folder / "alice.key").write_bytes(BOB[1]),
            r"alice.crt' and ssl.key.location '.*alice.key', wh",
        ),
        (lambda folder: (folder / "alice.key").write_bytes(_encrypted()), "in PEM, not encrypted"),
        (lambda folder: (folder / "alice.key").unlink(), "which cannot be read: No such file"),
    ],
    ids=["a key as authority", "a key as certificate", "another's key", "an encrypted key", "no key"],
)
def test_files_that_cannot_be_used_are_refused_by_name(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    config = config_in(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=said):
        transport_for(config)


@pytest.mark.rule("CL-183")
def test_a_connection_that_a_node_ends_names_the_fault_of_the_clients_certificate(tmp_path: Path) -> None:
    closed = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed"
    config = config_in(tmp_path)
    path = str(tmp_path / "alice.crt")
    assert f"did not accept the certificate of CN=alice in {path} (ssl.cert" in transport_for(config).explained(closed)
    expired = AUTHORITY.issue("alice", days=-1)
    (tmp_path / "alice.crt").write_bytes(expired[0])
    (tmp_path / "alice.key").write_bytes(expired[1])
    said = transport_for(config).explained(closed)
    assert f"the certificate of CN=alice in {path} expired at 2" in said
    assert "perhaps" not in said
    bare = Config(
        ADMIN,
        {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.crt")},
    )
    said = transport_for(bare).explained(closed)
    assert "perhaps it requires a client certificate, and ssl.certificate.location is not set" in said


@pytest.mark.rule("CM-60")
def test_new_files_are_used_once_they_belong_together(tmp_path: Path) -> None:
    transport = transport_for(config_in(tmp_path))
    credentials = transport._credentials
    assert credentials is not None
    first = credentials()
    assert credentials() is first
    (tmp_path / "alice.key").write_bytes(BOB[1])  # the certificate follows
    assert credentials() is first
    (tmp_path / "alice.crt").write_bytes(BOB[0])
    assert credentials() is not first
    assert credentials() is credentials()


@pytest.mark.rule("CL-158")
def test_a_token_and_a_password_come_from_settings_or_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(**given: str) -> object:
        named = {name.replace("_", "."): value for name, value in given.items()}
        return security._Authorization(Config(ADMIN, {"bootstrap.servers": "127.0.0.1:1", **named}))()

    file = tmp_path / "secret"
    file.write_text("x\n")
    assert sent() == ()
    assert sent(sasl_oauthbearer_token="t") == (("authorization", "Bearer t"),)
    assert sent(sasl_oauthbearer_token_location=str(file)) == (("authorization", "Bearer x"),)
    basic = (("authorization", "Basic YTp4"),)
    assert sent(sasl_username="a", sasl_password="x") == basic
    assert sent(sasl_username="a", sasl_password_location=str(file)) == basic
    for wrong in (
        {"sasl_username": "a"},
        {"sasl_password": "x"},
        {"sasl_username": "a", "sasl_oauthbearer_token": "t"},
        {"sasl_oauthbearer_token": "t", "sasl_oauthbearer_token_location": str(file)},
        {"sasl_oauthbearer_token_location": str(tmp_path / "none")},
        {"sasl_oauthbearer_token": "a\nb"},
    ):
        with pytest.raises(ConfigError):
            sent(**wrong)
    kept = security._Authorization(
        Config(ADMIN, {"bootstrap.servers": "127.0.0.1:1", "sasl.oauthbearer.token.location": str(file)})
    )
    monkeypatch.setattr(security, "_CHECK_S", 0.0)
    file.write_text("newer")
    assert kept() == (("authorization", "Bearer newer"),)
    file.unlink()
    assert kept() == (("authorization", "Bearer newer"),)


@pytest.mark.rule("CL-158")
def test_a_file_is_checked_at_once_after_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "_CHECK_S", 3_600.0)
    file = tmp_path / "secret"
    file.write_text("old")
    kept = security._Authorization(
        Config(ADMIN, {"bootstrap.servers": "127.0.0.1:1", "sasl.oauthbearer.token.location": str(file)})
    )
    assert not kept.refused()
    file.write_text("newer")
    assert kept() == (("authorization", "Bearer old"),)
    assert kept.refused()
    assert kept() == (("authorization", "Bearer newer"),)
    assert not kept.refused()
    file.unlink()
    assert not kept.refused()
    assert kept() == (("authorization", "Bearer newer"),)


@pytest.mark.rule("CM-204")
def test_a_key_that_everyone_can_read_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(security, "readable_by_all", lambda path: f"all read {path}")
    config = config_in(tmp_path)
    for _ in range(2):
        asyncio.run(transport_for(config).close())
    key = tmp_path / "alice.key"
    (message,) = caplog.messages
    assert message.startswith(f"ssl.key.location: all read {key}. ")
    assert message.endswith(f"try: chmod o= {key}")
