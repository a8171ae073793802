"""Writes topics by their names into log lines (CM-213): shards, store keys and errors hold topic ids, which a person
does not know.

A process has one log, so it has one source of names: the newest metadata that it has read. A line about a topic that is
not in them keeps its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final

from kip932.ids import parse_topic_id

#: Returns the name of the topic with an id, "" if it is not known.
Names = Callable[[bytes], str]

_ID: Final = r"[A-Za-z0-9_-]{22}"
#: A partition by its topic's id, outside a store's key: `ID:0`, `group:ID:0`, `ID-0`.
_PARTITION: Final = re.compile(rf"(?<![A-Za-z0-9_-])(?<!\{{tp:)({_ID})(?=[:-]\d+(?![A-Za-z0-9_-]))")
#: Any id, also one in a store's key, which must stay as it is: a person looks it up in the store.
_ANY: Final = re.compile(rf"(?<![A-Za-z0-9_-])({_ID})(?![A-Za-z0-9_])")
_FIELD: Final = "topic"


class TopicNames:
    """A processor of log lines. `follow` gives it the names, `forget` takes them away."""

    def __init__(self) -> None:
        self._names: Names | None = None

    def follow(self, names: Names) -> None:
        """Use these names from now on."""
        self._names = names

    def forget(self, names: Names) -> None:
        """Stop using these names, if they are the ones in use."""
        if self._names == names:
            self._names = None

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Replace the ids of partitions by the topics' names; where an id stays that is part of something else, add the
        name in a field of its own."""
        names = self._names
        if names is None:
            return event
        left: dict[str, None] = {}
        for field, value in event.items():
            if isinstance(value, str):
                event[field] = self._named(value, names, left)
            elif isinstance(value, list | tuple):
                event[field] = [self._named(each, names, left) if isinstance(each, str) else each for each in value]
        missing = [name for name in left if not any(name in text for text in _texts(event))]
        if missing and _FIELD not in event:
            event[_FIELD] = ", ".join(missing)
        return event

    @staticmethod
    def _named(text: str, names: Names, left: dict[str, None]) -> str:
        if len(text) < 22:
            return text
        named = _PARTITION.sub(lambda found: _name(found[1], names) or found[1], text)
        for topic_id in _ANY.findall(named):
            if name := _name(topic_id, names):
                left[name] = None
        return named


def _name(text: str, names: Names) -> str:
    try:
        return names(parse_topic_id(text))
    except ValueError:
        return ""


def _texts(event: MutableMapping[str, Any]) -> Iterator[str]:
    for value in event.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if isinstance(each, str))


#: The one of this process.
TOPIC_NAMES: Final = TopicNames()
