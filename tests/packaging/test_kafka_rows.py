"""Each row of the comparison with Kafka's behaviour names existing tests."""

import re
from functools import cache

from tests.packaging.test_tidy import ROOT, tracked

PAGE = ROOT / "docs" / "reference" / "delivery-beside-kafka.md"
ROW = re.compile(r"^\|(?P<kafka>[^|]+)\|(?P<here>[^|]+)\|(?P<tests>[^|]+)\|$")
NO_ROW = re.compile(r"^\|( Kafka 4\.4\.0 |---)")


@cache
def names() -> frozenset[str]:
    """Return the names of all test functions in the suites."""
    sources = [path.read_text(encoding="utf-8") for path in tracked(".py") if path.name.startswith("test_")]
    return frozenset(name for text in sources for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))


def test_every_row_names_tests_that_there_are() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [ROW.match(line) for line in lines if not NO_ROW.match(line)]
    assert None not in rows
    assert len(rows) > 40
    for row in rows:
        assert row is not None
        named = re.findall(r"`(test_\w+)`", row["tests"])
        assert named, row["kafka"]
        assert [name for name in named if name not in names()] == [], row["kafka"]
