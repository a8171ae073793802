"""Declares a setting of a client or a service once: name as in Kafka, type, default, range, unit, a one-sentence
description.

Environment, file, flags, validation, DescribeConfigs and the reference pages use these declarations. They are not
pydantic-settings because the same declarations also describe configs in the metadata log: text under dotted names,
checked against the values of other configs, with Kafka's types and synonyms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
Function = Callable[[Any], Any] | None


class ConfigType(IntEnum):
    """Types of DescribeConfigs, with Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_LIMITS: Final = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Generic[T]):
    """One setting or config.

    `dynamic`: it may be altered while the process runs. `synonym`: the broker config it falls back to. `bounds`: the
    broker configs that hold the minimum and the maximum that a group may set (GC-144a). `unserved`: why only the
    default may be set, for a config of a feature that this suite does not have (CM-120).
    """

    name: str
    type: ConfigType
    default: T
    doc: str
    parse: Callable[[str], T]
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    dynamic: bool = False
    internal: bool = False
    sensitive: bool = False
    synonym: str = ""
    bounds: tuple[str, str] | None = None
    unserved: str = ""

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return "SHAREGROUPS_" + self.name.replace(".", "_").replace("-", "_").upper()

    @property
    def range_text(self) -> str:
        """The range of values, as text for users."""
        if self.unserved:
            return f"only {self.text(self.default) or 'empty'}"
        if self.choices:
            return ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        return f"at least {self.low}" if self.low is not None else ""

    def value(self, text: str) -> T:
        """Parse `text`. Raises ValueError with a sentence that names the setting, the value and what is expected."""
        try:
            return self.parse(text)
        except ValueError as error:
            shown = "that is not shown" if self.sensitive else repr(text)
            raise ValueError(f"Invalid value {shown} for {self.name}: {error}") from None

    def given(self, text: str) -> T:
        """Parse a value that is being set now: as `value`, but also refuse one that would have no effect (CM-120)."""
        value = self.value(text)
        if self.unserved and value != self.default:
            allowed = f"it can only be left at its default, {self.text(self.default) or 'empty'}"
            raise ValueError(f"Invalid value {text!r} for {self.name}: {self.unserved}; {allowed}")
        return value

    def text(self, value: T) -> str:
        """Return a value as text, as the metadata log, files and users write it."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


def integer(
    name: str,
    default: int,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    unit: str = "",
    kind: ConfigType = ConfigType.INT,
    dynamic: bool = False,
    internal: bool = False,
    synonym: str = "",
    bounds: tuple[str, str] | None = None,
) -> Setting[int]:
    """Declare a whole number between `low` and `high`."""
    least, most = _LIMITS[kind]
    lowest, highest = least if low is None else low, most if high is None else high

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text):
            raise ValueError("it is not a whole number")
        value = int(text)
        if value < lowest:
            raise ValueError(f"it must be at least {lowest}")
        if value > highest:
            raise ValueError(f"it must be at most {highest}")
        return value

    return Setting(
        name, kind, default, doc, parse, low, high,
        unit=unit, dynamic=dynamic, internal=internal, synonym=synonym, bounds=bounds,
    )  # fmt: skip


def decimal(name: str, default: float, doc: str, *, low: int, high: int, dynamic: bool = False) -> Setting[float]:
    """Declare a number between `low` and `high`, with or without a fraction."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,20}(\.[0-9]{1,20})?\s*", text):
            raise ValueError("it is not a number")
        value = float(text)
        if value < low:
            raise ValueError(f"it must be at least {low}")
        if value > high:
            raise ValueError(f"it must be at most {high}")
        return value

    return Setting(name, ConfigType.DOUBLE, default, doc, parse, low, high, dynamic=dynamic)


def boolean(
    name: str, default: bool, doc: str, *, choices: tuple[str, ...] = (), dynamic: bool = False, synonym: str = ""
) -> Setting[bool]:
    """Declare a setting that is `true` or `false`."""

    def parse(text: str) -> bool:
        match text.strip().lower():
            case "true":
                return True
            case "false":
                return False
        raise ValueError("it must be true or false")

    return Setting(name, ConfigType.BOOLEAN, default, doc, parse, choices=choices, dynamic=dynamic, synonym=synonym)


def string(
    name: str,
    default: str,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    check: Callable[[str], None] | None = None,
    kind: ConfigType = ConfigType.STRING,
    dynamic: bool = False,
    internal: bool = False,
    sensitive: bool = False,
    synonym: str = "",
) -> Setting[str]:
    """Declare text, one of `choices` when there are any. `check` raises ValueError for text it refuses."""

    def parse(text: str) -> str:
        if choices and text not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        if check is not None:
            check(text)
        return text

    return Setting(
        name, kind, default, doc, parse,
        choices=choices, dynamic=dynamic, internal=internal, sensitive=sensitive, synonym=synonym,
    )  # fmt: skip


def listing(
    name: str, default: tuple[str, ...], doc: str, *, choices: tuple[str, ...] = (), dynamic: bool = False
) -> Setting[tuple[str, ...]]:
    """Declare words separated by commas, each one of `choices` when there are any."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        for word in words:
            if choices and word not in choices:
                raise ValueError(f"{word!r} is none of {', '.join(choices)}")
        return words

    return Setting(name, ConfigType.LIST, default, doc, parse, choices=choices, dynamic=dynamic)


def function(name: str, doc: str) -> Setting[Function]:
    """Declare a function of one argument, None by default, which text cannot give."""

    def parse(text: str) -> Function:
        raise ValueError("it must be a function")

    return Setting(name, ConfigType.CLASS, None, doc, parse)


def unserved(setting: Setting[T], why: str) -> Setting[T]:
    """Mark a Kafka setting that has no effect here: any value but the default is refused, with `why` as the reason."""
    return replace(setting, unserved=why, doc=f"{setting.doc} Only its default can be set: {why}.")


def table(settings: Iterable[AnySetting]) -> SettingTable:
    """Return the settings by name. Raises ValueError when a name occurs twice."""
    result: SettingTable = {}
    for setting in settings:
        if setting.name in result:
            raise ValueError(f"setting {setting.name} is declared twice")
        result[setting.name] = setting
    return result


AnySetting = Setting[int] | Setting[float] | Setting[bool] | Setting[str] | Setting[tuple[str, ...]]
SettingTable = dict[str, AnySetting]

_DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<d>[+-]?\d+)D)?(?:T(?:(?P<h>[+-]?\d+)H)?(?:(?P<m>[+-]?\d+)M)?(?:(?P<s>[+-]?\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO-8601 duration such as `PT10S` or `P1DT2H`. Raises ValueError for other text."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match[part] for part in "dhms") or text.upper().endswith("T"):
        raise ValueError(f"{text!r} is not an ISO-8601 duration such as PT10S")
    days, hours, minutes = (int(match[part] or 0) for part in "dhm")
    total = round((((days * 24 + hours) * 60 + minutes) * 60 + float(match["s"] or 0)) * 1000)
    return -total if match["sign"] == "-" else total
