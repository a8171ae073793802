"""`consume` with formatters and deserializers: Kafka's by name, and a user's as module:name."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sharegroups import Message
from sharegroups.cli.main import main
from sharegroups.producing.produced import encode
from tests.support.fake_cluster.cluster import FakeCluster

OWN = "tests.unit.sharegroups.cli.test_formatting:Shouting"


class Shouting:
    """A formatter such as users write."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._mark = properties.get("mark", "!")

    def line(self, message: Message) -> str:
        if message.value() == b"bad":
            raise LookupError("no words")
        return f"{message.value().decode().upper()}{self._mark}\n"


def reversed_text(data: bytes) -> str:
    return data.decode()[::-1]


def _produce(fake: FakeCluster, *values: bytes, key: bytes | None = None) -> None:
    records = [(key, value, (), 1000) for value in values]
    fake.log("t", 0).append(encode(records)[0], len(records))


def _consume(*words: str, count: int = 1) -> Result:
    limit = ["--max-messages", str(count)] if count else ["--timeout-ms", "1000"]
    return CliRunner().invoke(
        main, ["consume", "--topic", "t", "--group", "g", "--bootstrap-server", "node0:9000", *limit, *words]
    )


@pytest.mark.rule("CT-30")
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("DefaultMessageFormatter", "one\n"),
        ("org.apache.kafka.tools.consumer.DefaultMessageFormatter", "one\n"),
        ("org.apache.kafka.tools.consumer.NoOpMessageFormatter", ""),
        (OWN, "ONE!\n"),
    ],
)
def test_a_formatter_is_named(fake: FakeCluster, name: str, written: str) -> None:
    _produce(fake, b"one")
    result = _consume("--formatter", name)
    assert (result.exit_code, result.stdout) == (0, written)
    assert fake.states("t") == {0: "acknowledged"}


@pytest.mark.rule("CT-30")
def test_a_formatter_gets_properties_of_its_file_and_of_the_command_line(fake: FakeCluster, tmp_path: Path) -> None:
    _produce(fake, b"one", b"two")
    file = tmp_path / "formatter.properties"
    file.write_text("# how to write\nmark = ?\n")
    assert _consume("--formatter", OWN, "--formatter-config", str(file)).stdout == "ONE?\n"
    result = _consume("--formatter", OWN, "--formatter-config", str(file), "--formatter-property", "mark= ;")
    assert result.stdout == "TWO ;\n"


@pytest.mark.rule("CT-31")
def test_each_property_of_the_default_formatter_adds_its_column(fake: FakeCluster) -> None:
    headers = (("h", b"1"), ("n", None))
    records = [(b"k", b"v", headers, 1000), (None, None, (), 1001)]
    fake.log("t", 1).append(encode(records)[0], len(records))
    printed = ("timestamp", "key", "offset", "delivery", "epoch", "partition", "headers")
    words = [word for name in printed for word in ("--formatter-property", f"print.{name}=true")]
    assert _consume(*words, count=2).stdout == (
        "CreateTime:1000\tPartition:1\tOffset:0\tDelivery:1\tEpoch:NOT_PRESENT\th:1,n:null\tk\tv\n"
        "CreateTime:1001\tPartition:1\tOffset:1\tDelivery:1\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    )
    fake.log("t", 1).append(encode(records)[0], len(records))
    texts = ("key.separator=|", "line.separator=;", "headers.separator=+", "null.literal=NIL")
    words = [word for text in texts for word in ("--formatter-property", text)]
    words += [word for name in ("key", "headers") for word in ("--formatter-property", f"print.{name}=true")]
    assert _consume(*words, count=2).stdout == "h:1+n:NIL|k|v;NO_HEADERS|NIL|NIL;"
    fake.log("t", 1).append(encode(records[:1])[0], 1)
    words = ["--formatter-property", "print.value=false", "--formatter-property", "print.key=true"]
    assert _consume(*words).stdout == "k\n"


@pytest.mark.rule("CT-32")
@pytest.mark.parametrize(
    ("flags", "exit_code", "state"), [((), 1, "available"), (("--reject-message-on-error",), 0, "archived")]
)
def test_whatever_a_formatter_raises_is_a_formatting_error(
    fake: FakeCluster, flags: tuple[str, ...], exit_code: int, state: str
) -> None:
    _produce(fake, b"bad")
    result = _consume("--formatter", OWN, *flags, count=0)
    assert result.exit_code == exit_code
    assert "Error: t-0 offset 0 cannot be written: no words" in result.stderr
    assert fake.states("t") == {0: state}
    assert fake.reasons("t") == {0: (1, "sharegroups consume cannot write it: no words")}


@pytest.mark.rule("CT-30")
@pytest.mark.parametrize(
    ("name", "data", "written"),
    [
        ("StringDeserializer", b"one", "one"),
        ("org.apache.kafka.common.serialization.LongDeserializer", struct.pack(">q", -7), "-7"),
        ("IntegerDeserializer", struct.pack(">i", 7), "7"),
        ("DoubleDeserializer", struct.pack(">d", 0.5), "0.5"),
        ("UUIDDeserializer", b"12345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345678"),
        ("tests.unit.sharegroups.cli.test_formatting:reversed_text", b"one", "eno"),
    ],
)
def test_deserializers_are_named(fake: FakeCluster, name: str, data: bytes, written: str) -> None:
    _produce(fake, data, data, key=data)
    words = ["--key-deserializer", name, "--value-deserializer", name]
    assert _consume(*words, "--formatter-property", "print.key=true").stdout == f"{written}\t{written}\n"
    document = json.loads(_consume(*words, "--output", "json").stdout)
    assert (str(document["key"]), str(document["value"])) == (written, written)


@pytest.mark.rule("CT-32")
def test_a_record_that_a_deserializer_refuses_is_a_formatting_error(fake: FakeCluster) -> None:
    _produce(fake, b"not eight bytes")
    result = _consume("--value-deserializer", "LongDeserializer", "--reject-message-on-error", count=0)
    assert "the value deserializer failed" in result.stderr
    assert fake.states("t") == {0: "archived"}


@pytest.mark.rule("CT-30", "CT-29")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--formatter", "Fancy"), "--formatter 'Fancy' is not known; known: DefaultMessageFormatter, NoOp"),
        (("--formatter", "no_such_module:Fancy"), "cannot be loaded: No module named 'no_such_module'"),
        (("--formatter", "json:Fancy"), "has no attribute 'Fancy'"),
        (("--formatter", "json:__name__"), "is a str; expected a class or a function"),
        (("--formatter", OWN, "--output", "json"), "exclude each other"),
        (("--value-deserializer", "Long"), "--value-deserializer 'Long' is not known; known: ByteArray"),
    ],
)
def test_what_is_not_there_is_a_usage_error(fake: FakeCluster, words: tuple[str, ...], said: str) -> None:
    result = _consume(*words)
    assert result.exit_code == 1
    assert said in result.stderr


@pytest.mark.rule("CT-30")
def test_the_old_names_of_options_work_and_say_the_new_ones(fake: FakeCluster, tmp_path: Path) -> None:
    _produce(fake, b"one", key=b"k")
    file = tmp_path / "consumer.properties"
    file.write_text("max.poll.records=1\n")
    words = ["--property", "print.key=true", "--consumer-property", "client.id=c", "--consumer-config", str(file)]
    result = _consume(*words)
    assert result.stdout == "k\tone\n"
    for name in ("--formatter-property", "--command-property", "--command-config"):
        assert f"use {name}" in result.stderr
    both = _consume("--consumer-config", str(file), "--command-config", str(file))
    assert both.exit_code == 1
    assert "the old name of --command-config" in both.stderr
