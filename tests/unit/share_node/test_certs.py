"""`sharegroups certs`: what it makes, keeps, and refuses."""

from __future__ import annotations

import errno
import stat
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from shard_runtime.config.process_settings import load_settings
from shard_runtime.rpc.certificates import read_certificates
from share_node.certs import Authority, certs
from sharegroups.cli.output import lines_of, pairs
from tests.support.certificates import files_in


def spki(of: Any) -> bytes:
    key = of.public_key()
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(certs, words)


@pytest.mark.rule("CT-136")
def test_it_makes_what_a_node_and_a_client_need_and_the_settings_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "with a blank"
    made = run(str(folder), "--client", "alice", "--host", "node.example")
    assert made.exit_code == 0, made.output
    assert read_certificates(files_in(folder), datetime.now(UTC)).names == ("node.example",)
    settings = load_settings(file=folder / "node.toml")
    assert [settings.text(f"ssl.{name}.location") for name in ("certificate", "key", "ca")] == [
        str(folder / name) for name in ("node.crt", "node.key", "ca.crt")
    ]
    assert settings.text("ssl.client.auth") == "required"
    given = pairs(lines_of(folder / "alice.properties"))
    assert given["security.protocol"] == "SSL"
    alice = x509.load_pem_x509_certificate(Path(given["ssl.certificate.location"]).read_bytes())
    assert alice.subject.rfc4514_string() == "CN=alice"
    assert f"sharegroups up --config '{folder}/node.toml'" in made.output
    assert f"--command-config '{folder}/alice.properties'" in made.output


@pytest.mark.rule("CT-136")
def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    run(str(tmp_path), "--client", "alice")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")}
    assert modes == {"ca.key": 0o600, "node.key": 0o600, "alice.key": 0o600}


@pytest.mark.rule("CT-136")
def test_a_second_run_adds_a_client_and_keeps_what_there_is(tmp_path: Path) -> None:
    run(str(tmp_path), "--client", "alice")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    added = run(str(tmp_path), "--client", "alice", "--client", "bob")
    assert added.exit_code == 0, added.output
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"bob.crt", "bob.key", "bob.properties"}
    bob = x509.load_pem_x509_certificate(after["bob.crt"])
    bob.verify_directly_issued_by(x509.load_pem_x509_certificate(before["ca.crt"]))


@pytest.mark.rule("CT-136")
def test_what_it_keeps_is_named_with_its_state(tmp_path: Path) -> None:
    assert "kept" not in run(str(tmp_path), "--client", "alice", "--client", "old", "--client", "bad").stderr
    (tmp_path / "old.crt").write_bytes(Authority.made().issue("old")[0])
    (tmp_path / "bad.crt").write_text("nothing\n")
    said = run(
        str(tmp_path),
        *["--client", "alice", "--client", "old", "--client", "bad", "--client", "new", "--client", "alice"],
    )
    assert said.exit_code == 0
    node, alice, old, bad = said.stderr.splitlines()
    assert node.startswith("kept: node.crt, valid until 2")
    assert alice.startswith("kept: alice.crt, valid until 2")
    assert alice.endswith("; to renew it, remove alice.crt and alice.key first")
    assert old.startswith("kept: old.crt, of another authority than ca.crt, so no node accepts it;")
    assert bad.startswith("kept: bad.crt, which is not a certificate in PEM;")


@pytest.mark.rule("CT-136")
@pytest.mark.parametrize(
    ("given", "meant"), [("User:bob", " Did you mean --client bob?"), ("user:bob", "bob?"), ("User:", "put before it.")]
)
def test_a_principal_is_no_name_of_a_client(tmp_path: Path, given: str, meant: str) -> None:
    refused = run(str(tmp_path / "new"), "--client", given)
    assert refused.exit_code == 1
    assert f"'{given}' is a principal; expected the name alone" in refused.stderr
    assert refused.stderr.rstrip().endswith(meant)
    assert not (tmp_path / "new").exists()


@pytest.mark.rule("CT-136")
def test_a_run_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    """The first run stopped between two files: the next run creates the missing ones."""
    run(str(tmp_path), "--client", "alice")
    for name in ("node.crt", "node.toml", "alice.key", "alice.properties"):
        (tmp_path / name).unlink()
    made = run(str(tmp_path), "--client", "alice")
    assert made.exit_code == 0, made.output
    assert read_certificates(files_in(tmp_path), datetime.now(UTC))
    assert tomllib.loads((tmp_path / "node.toml").read_text())
    assert lines_of(tmp_path / "alice.properties")
    pair = (tmp_path / "alice.crt").read_bytes(), (tmp_path / "alice.key").read_bytes()
    assert spki(x509.load_pem_x509_certificate(pair[0])) == spki(load_pem_private_key(pair[1], None))


@pytest.mark.rule("CT-136")
@pytest.mark.parametrize("name", ["", "ca", "node", "a/b", "x" * 65, "é" * 40, "a\nb"])
def test_a_name_that_cannot_be_a_clients_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    refused = run(str(tmp_path / "new"), "--client", name)
    assert refused.exit_code == 1
    assert "cannot be a client's name; expected 1 to 64 printable bytes" in refused.output
    assert not (tmp_path / "new").exists()


@pytest.mark.rule("CT-136")
@pytest.mark.parametrize("left", ["ca.crt", "ca.key"])
def test_half_an_authority_is_refused_and_not_replaced(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("garbage")
    refused = run(str(tmp_path), "--client", "alice")
    assert refused.exit_code == 1
    assert "the authority in" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == [left]


@pytest.mark.rule("CT-136")
@pytest.mark.parametrize("known", [True, False])
def test_an_authority_that_may_not_be_read_is_kept_and_its_owner_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The superuser may read all files, so the refusal is made here."""
    run(str(tmp_path), "--client", "alice")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == "ca.key":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    def owner(path: Path) -> str:
        if not known:
            raise KeyError(path)
        return "carol"

    monkeypatch.setattr(Path, "read_bytes", refused)
    monkeypatch.setattr(Path, "owner", owner)
    said = run(str(tmp_path), "--client", "bob")
    monkeypatch.undo()
    assert said.exit_code == 1
    assert f"cannot be read: {tmp_path / 'ca.key'}: permission denied; " in said.stderr
    assert ("it belongs to carol, and this is user id" in said.stderr) is known
    assert "Run this as its owner, or have the owner make it readable; nothing was changed." in said.stderr
    assert "remove" not in said.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.rule("CT-136")
@pytest.mark.parametrize("missing", ["alice.key", "alice.crt", "node.crt"])
def test_a_certificate_that_is_made_again_is_named(tmp_path: Path, missing: str) -> None:
    run(str(tmp_path), "--client", "alice")
    (tmp_path / missing).unlink()
    said = run(str(tmp_path), "--client", "alice").stderr
    name = missing.partition(".")[0]
    assert f"made again: {name}.crt and {name}.key, since {missing} was missing\n" in said
    assert f"kept: {name}.crt" not in said
    assert "made again" not in run(str(tmp_path), "--client", "alice", "--client", "new").stderr


@pytest.mark.rule("CT-136")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run(str(tmp_path / "file" / "below"), "--client", "alice")
    assert refused.exit_code == 1
    assert "certificates could be made in" in refused.output


@pytest.mark.rule("CT-136")
def test_a_host_that_is_no_name_is_refused(tmp_path: Path) -> None:
    refused = run(str(tmp_path), "--client", "alice", "--host", "knoten-ä")
    assert refused.exit_code == 1
    assert "knoten-ä" in refused.output


@pytest.mark.rule("CT-136")
def test_no_host_is_refused_too(tmp_path: Path) -> None:
    refused = run(str(tmp_path), "--client", "alice", "--host", "")
    assert refused.exit_code == 1
    assert "'' cannot be the host of a certificate" in refused.output


@pytest.mark.rule("CT-136")
def test_other_hosts_at_a_second_run_are_said_to_be_without_effect(tmp_path: Path) -> None:
    run(str(tmp_path), "--client", "alice", "--host", "a.example")
    assert "is kept" not in run(str(tmp_path), "--client", "alice").output
    assert "is kept" not in run(str(tmp_path), "--client", "alice", "--host", "a.example").output
    assert (
        "node.crt is kept, but is not for b.example"
        in run(str(tmp_path), "--client", "alice", "--host", "a.example", "--host", "b.example").output
    )


@pytest.mark.rule("CT-136")
def test_an_authority_that_has_expired_makes_nothing(tmp_path: Path) -> None:
    old = Authority.made(days=-1)
    (tmp_path / "ca.crt").write_bytes(old.certificate)
    (tmp_path / "ca.key").write_bytes(old.key)
    refused = run(str(tmp_path), "--client", "alice")
    assert refused.exit_code == 1
    assert "expired at" in refused.output
    assert {path.name for path in tmp_path.iterdir()} == {"ca.crt", "ca.key"}


@pytest.mark.rule("CT-136")
def test_the_settings_of_a_folder_with_any_name_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / '\U0001f510 "quoted"'
    assert run(str(folder), "--client", "alice").exit_code == 0
    assert load_settings(file=folder / "node.toml").text("ssl.key.location") == str(folder / "node.key")
