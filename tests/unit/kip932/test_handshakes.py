"""What gRPC's texts for a failed handshake mean, and that the explanations are recognised."""

from __future__ import annotations

import pytest

from kip932.handshakes import explained, is_about_handshake

CLOSED = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed"


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("details", "tls", "shown", "said"),
    [
        (CLOSED, False, "", "if it serves TLS, security.protocol=SSL is missing here"),
        (CLOSED, True, "", "perhaps it requires a client certificate"),
        (CLOSED, True, "the certificate of CN=a has expired", "at once; the certificate of CN=a has expired)"),
        ("SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: x", True, "", "not issued by an authority in ssl.ca.location"),
        ("SSL_ERROR_SSL: WRONG_VERSION_NUMBER", True, "", "nothing there speaks TLS"),
    ],
)
def test_a_failed_handshake_is_explained(details: str, tls: bool, shown: str, said: str) -> None:
    """It shows the last sentence of (g), with gRPC's texts as they are."""
    text = explained(details, tls=tls, shown=shown)
    assert text.startswith(f"{details} (")
    assert said in text
    assert is_about_handshake(f"Metadata was not answered within 4 s; last: {text}")


@pytest.mark.parametrize("details", ["Connection refused", "Socket closed", ""])
def test_another_failure_keeps_its_text(details: str) -> None:
    assert explained(details, tls=True) == details
    assert not is_about_handshake(details)
