"""One vocabulary: words that have many meanings, or none that a stranger knows, stay out of the product's prose."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.packaging.test_tidy import PYTHON, name_of

PRODUCT = ("client/", "pipeline/", "protos/", "services/")
#: Word → what says it better.
WORDS = {
    "anew": "again, from scratch",
    "ill": "unavailable",
    "nobody": "the actor: no client, no other node",
    "somebody": "the actor: a client, another node",
    "tell": "log, report, notify, return, count",
    "tells": "logs, reports, notifies, returns, counts",
    "telling": "logging, reporting, notifying, returning, counting",
    "told": "logged, reported, notified, returned, counted",
    "whoever": "the actor",
}
WORD = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
#: Names, and what a reader cannot misunderstand: "tells them apart".
FREE = re.compile(r"`[^`]*`|\b[A-Z_]{3,}\b|\btells? \w+ apart\b")


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, each with the number of its first line; not what a pragma gives as its reason."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.partition("# noqa")[0].partition("# type: ignore")[0]


def found(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(FREE.sub("", text))]


def test_prose_does_without_words_that_say_little() -> None:
    said = [
        f"{name_of(path)}:{line}: {word!r}; say {WORDS[word]}"
        for path in PYTHON
        if name_of(path).startswith(PRODUCT)
        for line, text in prose(path.read_text(encoding="utf-8"))
        for word in found(text)
    ]
    assert not said, "\n".join(said)


def test_words_are_found_in_docstrings_and_comments_alone() -> None:
    source = '''
"""It tells."""
told = "told"  # TOLD or `told`, and it tells them apart
#: Nobody was told.
X = 1
"""Whoever."""
'''
    assert [word for _, text in sorted(prose(source)) for word in found(text)] == ["tells", "nobody", "told", "whoever"]
