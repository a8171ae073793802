"""One vocabulary: words that have many meanings, or none that a stranger knows, stay out of the product's prose.

Ids of rules stay out of what users read.
"""

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
#: The id of a rule. A user has no use for it: it stays in the specification, comments and tests.
RULE = re.compile(r"\b(?:CL|CM|CT|GC|INV|OP|PL|PM|SC|SR)-\d+")
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


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Strings that are no docstrings, each with its line."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def with_rule(text: str) -> bool:
    """Whether a user would read the id of a rule; a string that is nothing else, as in a table, is for the code."""
    rule = RULE.search(text)
    return rule is not None and rule.group() != text


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


def test_texts_for_users_name_no_rules() -> None:
    named = [
        f"{name_of(path)}:{line}: {text!r}"
        for path in PYTHON
        if name_of(path).startswith(PRODUCT) and "_pb2" not in path.name
        for line, text in strings(path.read_text(encoding="utf-8"))
        if with_rule(text)
    ]
    assert not named, "\n".join(named)


def test_rules_are_found_in_strings_alone() -> None:
    source = '''
"""CL-1 in a docstring."""
ROW = "CL-2"  # CL-3
ERROR = f"too late (CL-4)"
HELP = "how long (CM-5, PL-6)"
UTF = "UTF-8"
'''
    named = sorted((line, text) for line, text in strings(source) if with_rule(text))
    assert named == [(4, "too late (CL-4)"), (5, "how long (CM-5, PL-6)")]
