"""The times and the subject of a certificate, read without a library for certificates, are those that such a library
finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from kip932.certificate_times import CertificateTimes, certificate_times, outdated

KEY = ec.generate_private_key(ec.SECP256R1())
BEGINS, ENDS = datetime(1999, 12, 31, 23, 59, 58, tzinfo=UTC), datetime(2049, 1, 2, 3, 4, 5, tzinfo=UTC)


def made(subject: list[x509.NameAttribute[str]], begins: datetime = BEGINS, ends: datetime = ENDS) -> bytes:
    name = x509.Name(subject)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(x509.Name([])).public_key(KEY.public_key())
    builder = builder.serial_number(2**150).not_valid_before(begins).not_valid_after(ends)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "org"), x509.NameAttribute(NameOID.COMMON_NAME, "zoë")], "zoë"),
        ([x509.NameAttribute(NameOID.COMMON_NAME, "zoë", _type=_ASN1Type.BMPString)], "zoë"),
        ([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "n" * 60)] * 4, ""),
        ([], ""),
    ],
)
@pytest.mark.parametrize("ends", [ENDS, datetime(2051, 1, 1, tzinfo=UTC)])
def test_the_name_and_the_times_are_the_certificates(
    subject: list[x509.NameAttribute[str]], name: str, ends: datetime
) -> None:
    """From 2050 on, times are written in another form."""
    found = certificate_times(b"text before it\n" + made(subject, ends=ends) + made([]))
    assert found == CertificateTimes(name, BEGINS, ends)


@pytest.mark.parametrize("cut", [0, 30, 100, 300])
def test_what_is_no_certificate_is_none(cut: int) -> None:
    lines = made([]).decode().splitlines()
    body = "".join(lines[1:-1])[: cut - cut % 4]
    assert certificate_times(f"{lines[0]}\n{body}\n{lines[-1]}\n".encode()) is None
    assert certificate_times(b"") is None


@pytest.mark.rule("CM-60")
def test_a_certificate_out_of_its_time_is_named_with_its_file_and_the_time() -> None:
    second = timedelta(seconds=1)
    assert outdated("CN=alice", "/a.crt", BEGINS, ENDS, ENDS) == outdated("CN=a", "b", BEGINS, ENDS, BEGINS) == ""
    late = outdated("CN=alice", "/a.crt", BEGINS, ENDS, ENDS + second)
    assert late == "the certificate of CN=alice in /a.crt expired at 2049-01-02 03:04:05 UTC; renew it"
    early = outdated("CN=alice", "/a.crt", BEGINS, ENDS, BEGINS - second)
    assert "is valid only from 1999-12-31 23:59:58 UTC, but here it is 1999-12-31 23:59:57 UTC" in early
