"""The compression libraries of Kafka's Java client read what our producer compresses, and our client reads what they
compress.

The libraries come with Spark, which uses them for its own files.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from kip932.compression.kinds import Compression, frames_of
from share_metrics.java import NoJavaError, java_home

JARS = Path(pyspark.__file__).parent / "jars"
CONTENTS = {
    "nothing": b"",
    "words": b"\x12\x0c\x12\x0aover again" * 9_000,
    "chance": random.Random(5).randbytes(200_000),
}


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A Java virtual machine with these libraries."""
    try:
        home = java_home() or os.environ.get("JAVA_HOME")
    except NoJavaError as error:
        pytest.skip(str(error))
    port = launch_gateway(
        classpath=str(JARS / "*"),
        die_on_exit=True,
        java_path=str(Path(home) / "bin" / "java") if home else shutil.which("java"),
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


def reader(java: Any, kind: Compression, packed: bytes) -> Any:
    """The stream class that Kafka's Java client reads with; for lz4, the library's class that the client builds on."""
    source = java.java.io.ByteArrayInputStream(packed)
    match kind:
        case Compression.GZIP:
            return java.java.util.zip.GZIPInputStream(source)
        case Compression.SNAPPY:
            return java.org.xerial.snappy.SnappyInputStream(source)
        case Compression.LZ4:
            return java.net.jpountz.lz4.LZ4FrameInputStream(source)
        case _:
            return java.com.github.luben.zstd.ZstdInputStreamNoFinalizer(source)


def writer(java: Any, kind: Compression, into: Any) -> Any:
    """The stream class that Kafka's Java client writes with."""
    match kind:
        case Compression.GZIP:
            return java.java.util.zip.GZIPOutputStream(into)
        case Compression.SNAPPY:
            return java.org.xerial.snappy.SnappyOutputStream(into)
        case Compression.LZ4:
            return java.net.jpountz.lz4.LZ4FrameOutputStream(into)
        case _:
            return java.com.github.luben.zstd.ZstdOutputStreamNoFinalizer(into, 22)


@pytest.mark.rule("CM-116")
@pytest.mark.parametrize("kind", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_frames_are_read_both_ways(java: Any, kind: Compression, content: bytes) -> None:
    packed = frames_of(kind).compress(content, None)
    assert bytes(reader(java, kind, packed).readAllBytes()) == content
    into = java.java.io.ByteArrayOutputStream()
    stream = writer(java, kind, into)
    stream.write(content)
    stream.close()
    assert b"".join(frames_of(kind).unpacked(bytes(into.toByteArray()), 1 << 20)) == content
