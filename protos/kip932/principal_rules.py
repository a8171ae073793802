"""Derives a caller's name from its certificate, by rules in Kafka's syntax (`ssl.principal.mapping.rules`, CM-187).
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DEFAULT: Final = "DEFAULT"
_RULE: Final = "RULE:"
#: How long the text of the rules may be, in characters.
_TEXT_MAX: Final = 16_384
_EXPECTED: Final = f"expected {DEFAULT}, or RULE:pattern/replacement/ with L or U after it for lower or upper case"
#: A part of a rule ends at a slash without a backslash before it.
_PART: Final = re.compile(r"((?:\\.|[^\\/])*)/", re.DOTALL)
_CASE: Final = re.compile(r"[LU]?(?=\s*(?:,|$))")
_BETWEEN: Final = re.compile(r"\s*,\s*")
#: In a replacement: a reference to a group, or a character after a backslash, which is taken literally.
_REFERENCE: Final = re.compile(r"\$(\d)|\\(.)|\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `case`: "L" or "U" for lower or upper case, "" for as it is. Without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def name(self, subject: str, default: str | None) -> str | None:
        """Return the name that this rule makes of a distinguished name; None if it does not match."""
        if self.pattern is None:
            return default
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _REFERENCE.sub(lambda each: _replaced(each, found), self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


#: The rules that apply without the setting.
DEFAULT_RULES: Final = (Rule(),)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules in a text, in order. Raises ValueError, which says where the mistake is."""
    if len(text) > _TEXT_MAX:
        raise ValueError(f"it has {len(text)} characters; at most {_TEXT_MAX}")
    rules, at, end = list[Rule](), len(text) - len(text.lstrip()), len(text.rstrip())
    while at < end or not rules:
        rule, at = _rule(text, at)
        rules.append(rule)
        if text[at:end].strip():
            between = _BETWEEN.match(text, at)
            if between is None:
                raise _fault(text, at, "expected a comma or the end after a rule")
            if between.end() >= end:
                raise _fault(text, at, f"nothing follows the comma; {_EXPECTED}")
            at = between.end()
        else:
            at = end
    return tuple(rules)


def mapped(rules: Sequence[Rule], subject: str, default: str | None) -> str | None:
    """Return the name that the first matching rule makes of a distinguished name; None if none matches. `default`: the
    name that DEFAULT gives, None without one: then DEFAULT does not match."""
    for rule in rules:
        name = rule.name(subject, default)
        if name is not None:
            return name
    return None


def _rule(text: str, at: int) -> tuple[Rule, int]:
    """Return the rule that begins at a position, and the position after it."""
    if text.startswith(DEFAULT, at):
        return Rule(), at + len(DEFAULT)
    if not text.startswith(_RULE, at):
        raise _fault(text, at, _EXPECTED)
    pattern = _PART.match(text, at + len(_RULE))
    if pattern is None:
        raise _fault(text, at + len(_RULE), f"the pattern has no / after it; {_EXPECTED}")
    replacement = _PART.match(text, pattern.end())
    if replacement is None:
        raise _fault(text, pattern.end(), f"the replacement has no / after it; {_EXPECTED}")
    case = _CASE.match(text, replacement.end())
    if case is None:
        raise _fault(text, replacement.end(), "expected L, U, a comma or the end after the replacement")
    try:
        compiled = re.compile(pattern[1])
    except re.error as error:
        place = pattern.start(1) + (error.pos or 0)
        raise _fault(text, place, f"the pattern is not a regular expression: {error.msg}") from None
    for reference in _REFERENCE.finditer(replacement[1]):
        number = int(reference[1] or 0)
        if reference[0] == "$" or number > compiled.groups:
            place = replacement.start(1) + reference.start()
            found = f"the pattern has {compiled.groups} groups"
            raise _fault(text, place, f"{reference[0]!r} names no group of the pattern ({found}); a plain $ is \\$")
    return Rule(compiled, replacement[1], case[0]), case.end()


def _replaced(reference: re.Match[str], found: re.Match[str]) -> str:
    return found[int(reference[1])] or "" if reference[1] else reference[2] or ""


def _fault(text: str, at: int, what: str) -> ValueError:
    return ValueError(f"at character {at + 1} ({text[at : at + 20]!r}): {what}")
