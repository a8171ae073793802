"""Kafka's numbers, names and frames for compressed records; frames written by Java's libraries are given in
hexadecimal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kip932.compression.kinds import Compression, frames_of, install_command, readable
from kip932.errors import UnsupportedCompressionTypeError
from tests.support.missing_codecs import without

CONTENT = b"\x12\x07\x12\x05hello" + b"\x12\x07\x12\x05abcab" * 6
#: Written by java.util.zip, snappy-java 1.1.10.8, lz4-java 1.11.0 and zstd-jni 1.5.7-7, called as Kafka's client does.
OF_JAVA = {
    "gzip": "1f8b08000000000000ff13621762cd48cdc9c9170232129392139348620000286aca0f3f000000",
    "snappy": "82534e41505059000000000100000001000000163f201207120568656c6c6f0109106162636162b20900",
    "lz4": "04224d186040821b000000901207120568656c6c6f09005f616263616209001550616263616200000000",
    "zstd": "28b52ffd0058c50000901207120568656c6c6f1207120561626361620100a459c2",
    "zstd of level 22, with its window of 128 MiB": (
        "28b52ffd0088cd0000981207120568656c6c6f120712056162636162120100a359c2"
    ),
    "zstd of level -5": ("28b52ffd0048150100d81207120568656c6c6f12071205616263616212071205616263616201002f728e01"),
}
#: Seven of Kafka's records, as librdkafka 2.16.0 sent them: its snappy data has no frame.
OF_LIBRDKAFKA = {
    "gzip": (
        "1f8b08000000000000031363606060e4ca48cdc9c967d062606062944b4c4a4e4c4210205116aca26c584539b08a726115e5c1140500"
        "4ca7bf5c90000000"
    ),
    "snappy": (
        "90015816000000010a68656c6c6f002a000002011e616263616219050116000452160000065216000008521600000a521600000c461600"
    ),
    "lz4": (
        "04224d186040823c000000f60816000000010a68656c6c6f002a000002011e616263616205000016001f041600021f061600021f0816"
        "00021f0a160002190c160050626361620000000000"
    ),
    "zstd": (
        "28b52ffd00588d0100040216000000010a68656c6c6f002a000002011e6162636162002a00000406080a0c0600c013f01df818f844ce"
        "af632b4d"
    ),
}
RECORDS = b"\x16\0\0\0\x01\x0ahello\0" + b"".join(
    bytes((0x2A, 0, 0, 2 * number, 1, 0x1E)) + b"abcab" * 3 + b"\0" for number in range(1, 7)
)


def kind_of(name: str) -> Compression:
    return Compression[name.split(maxsplit=1)[0].upper()]


def unpack(name: str, packed: bytes) -> bytes:
    return b"".join(frames_of(kind_of(name)).unpacked(packed, 1000))


@pytest.mark.rule("CM-116")
def test_numbers_and_names_are_kafkas() -> None:
    found = {kind.label: kind.value for kind in Compression}
    assert found == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.rule("CM-116")
@pytest.mark.parametrize("name", OF_JAVA)
def test_what_kafkas_java_client_writes_is_read(name: str) -> None:
    assert unpack(name, bytes.fromhex(OF_JAVA[name])) == CONTENT


@pytest.mark.rule("CM-116")
@pytest.mark.parametrize("name", OF_LIBRDKAFKA)
def test_what_librdkafka_writes_is_read(name: str) -> None:
    assert unpack(name, bytes.fromhex(OF_LIBRDKAFKA[name])) == RECORDS


@pytest.mark.rule("CM-116")
def test_frames_made_by_hand_are_read() -> None:
    snappy = b"\x82SNAPPY\0" + bytes.fromhex("00000001 00000001 00000007 0a08616263 0d03 00000005 0308") + b"xyz"
    with pytest.raises(Exception, match="not the last"):
        unpack("snappy", snappy)
    assert unpack("snappy", snappy[: 8 + 8 + 4 + 7]) == b"abcabcabca"
    assert unpack("lz4", bytes.fromhex("04224d18 604082 03000080 616263 00000000")) == b"abc"
    assert unpack("zstd", bytes.fromhex("28b52ffd 2005 180000 616263 130000 7a")) == b"abczz"


@pytest.mark.rule("CM-116")
def test_what_is_written_has_the_beginning_of_kafkas_frames() -> None:
    begins = {
        "gzip": "1f8b08",
        "snappy": "82534e41505059000000000100000001",
        "lz4": "04224d18604082",
        "zstd": "28b52ffd",
    }
    for name, begin in begins.items():
        packed = frames_of(kind_of(name)).compress(CONTENT, None)
        assert packed.startswith(bytes.fromhex(begin)), name
        assert len(packed) < len(CONTENT)
        assert frames_of(kind_of(name)).compress(CONTENT, None) == packed, "no time and no chance in it"


@pytest.mark.rule("CM-116")
def test_a_missing_library_says_what_to_install() -> None:
    assert readable() == tuple(Compression)
    with without("zstd", "snappy"):
        assert readable() == (Compression.NONE, Compression.GZIP, Compression.LZ4)
        with pytest.raises(
            UnsupportedCompressionTypeError, match=r"no library for zstd .*pip install 'sharegroups\[zstd\]'"
        ):
            frames_of(Compression.ZSTD)
    assert readable() == tuple(Compression)
    assert install_command(Compression.SNAPPY) == "pip install 'sharegroups[snappy]'"


@pytest.mark.rule("CM-116")
def test_without_any_library_gzip_is_left() -> None:
    program = (
        "import sys\n"
        "for name in ('lz4', 'cramjam', 'backports', 'compression'): sys.modules[name] = None\n"
        "from kip932.compression.kinds import readable\n"
        "import sharegroups, kip932.record_batches\n"
        "print([kind.label for kind in readable()])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "['none', 'gzip']", done.stderr
