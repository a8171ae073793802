"""One vocabulary: words that have many meanings, or none that a stranger knows, stay out of the pages for users.

They also stay out of the prose, strings and names in all Python files, including tests.

Ids of rules stay out of what users read.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packaging.test_tidy import PYTHON, ROOT, name_of, tracked

PRODUCT = ("client/", "pipeline/", "protos/", "services/")
#: Every Python file but this one, which has to list the words.
HELD = [path for path in PYTHON if path != Path(__file__).resolve()]
#: The pages for users; those for contributors, and the specification, are not.
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *(path for folder in (".", "howto", "reference") for path in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
PROTOS = [path for path in tracked(".proto") if name_of(path).startswith("protos/")]
#: Word → a better way to say it.
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
RULE = re.compile(r"\b(?:(?:CL|CM|CT|GC|INV|KL|OP|PL|PM|SC|SR)-\d+|X\d{1,2}\b)")
#: Names, and what a reader cannot misunderstand: "tells them apart".
FREE = re.compile(r"`[^`]*`|\b[A-Z_]{3,}\b|\btells? \w+ apart\b")
#: Words that a name has no use for: besides those of prose, what may mean check, poll, inspect, read or search.
IN_NAMES = frozenset({*WORDS, "look", "looks", "looked"})
#: One word of a name: of snake case, of camel case, or of constants.
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Names of functions in the store: nodes of the previous build call them while a cluster is upgraded.
STORED = frozenset({"transaction_look_v1"})
#: Code on a page: what a program prints, or what a user types.
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@functools.cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, each with the number of its first line; not what a pragma gives as its reason."""
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.partition("# noqa")[0].partition("# type: ignore")[0]


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield strings that are not docstrings, each with its line."""
    tree = tree_of(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def names(source: str) -> Iterator[tuple[int, str]]:
    """Names that code defines or uses, also inside f-strings, and strings that are names: of columns, slots, keys."""
    for node in ast.walk(tree_of(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value.isidentifier():
                yield line, node.value
            continue
        for _, value in ast.iter_fields(node):
            for name in value if isinstance(value, list) else [value]:
                if isinstance(name, str):
                    yield line, name


def poor(name: str) -> set[str]:
    """The words of a name that say little."""
    return set() if name in STORED else {part.lower() for part in PART.findall(name)} & IN_NAMES


@functools.cache
def held() -> list[tuple[Path, str]]:
    """The files of `HELD` whose name or text contains any of the words, each with its text. Parsing the others too
    would take most of a minute."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in HELD]
    return [
        (path, text)
        for path, text in texts
        if IN_NAMES & {part.lower() for part in PART.findall(f"{path.stem} {text}")}
    ]


def halves(line: str) -> tuple[str, str]:
    """The code and the comment of a line of a .proto file."""
    code, _, comment = line.partition("//")
    return code, comment


def prose_of_page(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page, without code."""
    text = CODE.sub(lambda code: "\n" * code.group().count("\n"), page.read_text(encoding="utf-8"))
    yield from enumerate(text.splitlines(), 1)


def with_rule(text: str) -> bool:
    """Whether a user would read the id of a rule. A string that is just an id, as in a table, is for the code."""
    rule = RULE.search(text)
    return rule is not None and rule.group() != text


def found(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(FREE.sub("", text))]


@pytest.mark.parametrize("texts", [prose, strings])
def test_texts_do_without_words_that_say_little(texts: Callable[[str], Iterator[tuple[int, str]]]) -> None:
    said = [
        f"{name_of(path)}:{line}: {word!r}; say {WORDS[word]}"
        for path, source in held()
        for line, text in texts(source)
        for word in found(text)
    ]
    assert any(name_of(path).startswith("tests/") for path in HELD)
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


def test_names_do_without_words_that_say_little() -> None:
    poor_names = [
        f"{name_of(path)}:{line}: {name}"
        for path, source in held()
        for line, name in [(1, path.stem), *names(source)]
        if poor(name)
    ]
    assert not poor_names, "\n".join(poor_names)


def test_names_are_found_wherever_they_are() -> None:
    source = '''
"""A docstring that tells nothing."""
from a_tell import lookup
class ToldBy:
    __slots__ = ("is_told",)
def look_at(self, *, told_by, tell=1):
    x.behind_anew = f"{tell_it}: nobody"
    looked_up(tells_types=2)["nobody"]
    for still, skill in retold, "it tells": pass
TOLD_AFTER_MS = 1
'''
    found = {name for _, name in names(source) if poor(name)}
    assert found == {
        *("a_tell", "ToldBy", "is_told", "look_at", "told_by", "tell", "behind_anew", "tell_it", "looked_up"),
        *("tells_types", "nobody", "TOLD_AFTER_MS"),
    }


def test_protos_do_without_words_that_say_little() -> None:
    said = []
    for path in PROTOS:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code, comment = halves(line)
            words = {*found(comment), *(word for name in re.findall(r"\w+", code) for word in poor(name))}
            said += [f"{name_of(path)}:{number}: {word!r}" for word in sorted(words)]
    assert PROTOS
    assert not said, "\n".join(said)


def test_pages_for_users_do_without_words_that_say_little() -> None:
    said = [
        f"{name_of(page)}:{line}: {word!r}; say {WORDS[word]}"
        for page in PAGES
        for line, text in prose_of_page(page)
        for word in found(text)
    ]
    assert len(PAGES) > 25
    assert not said, "\n".join(said)


def test_pages_for_users_name_no_rules() -> None:
    named = [
        f"{name_of(page)}:{line}: {rule}"
        for page in PAGES
        for line, text in prose_of_page(page)
        for rule in RULE.findall(text)
    ]
    assert not named, "\n".join(named)


def test_code_on_a_page_is_no_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It tells.\n```\nnobody (PL-1)\n```\n`told`, and CL-2.\n")
    assert [(line, *found(text)) for line, text in prose_of_page(page) if found(text)] == [(1, "tells")]
    assert [(line, *RULE.findall(text)) for line, text in prose_of_page(page) if RULE.search(text)] == [(5, "CL-2")]
