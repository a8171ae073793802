"""Checks arguments: a call refuses an argument of the wrong type, and names it, before it sends anything (CL-89).

Every error names the call and the argument, what was found, what was expected, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_SHOWN_MAX: Final = 80


def shown(value: object) -> str:
    """Return a value and its type as text that fits on one line."""
    text = repr(value)
    return f"{text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '…'} ({type(value).__name__})"


def refusal(call: str, argument: str, found: object, expected: str, instead: str = "") -> ValueError:
    """Return the error for a wrong argument."""
    hint = f". Write {instead}" if instead else ""
    return ValueError(f"{call}: {argument} is {shown(found)}; expected {expected}{hint}")


def items(call: str, given: object, what: str, kind: type | tuple[type, ...], instead: str) -> list[Any]:
    """Return the argument as a list. Raises ValueError when it cannot be one, or an item is not of `kind`.

    A str is refused, because it would be read as a list of its characters: deleting "orders" would delete a topic `o`.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"{call} needs a list of {what}, found {shown(given)}. Write {instead}")
    found = list(given)
    for one in found:
        if not isinstance(one, kind):
            raise ValueError(f"{call} needs a list of {what}, found {shown(one)} in it. Write {instead}")
    return found


def mapping(call: str, argument: str, given: object, what: str, instead: str) -> Mapping[Any, Any]:
    """Return the argument. Raises ValueError unless it is a mapping."""
    if not isinstance(given, Mapping):
        raise refusal(call, argument, given, f"a dict of {what}", instead)
    return given


def text(call: str, argument: str, given: object) -> str:
    """Return the argument. Raises ValueError unless it is a str."""
    if not isinstance(given, str):
        raise refusal(call, argument, given, "text", repr(str(given)) if isinstance(given, int | float) else "")
    return given


def whole(call: str, argument: str, given: object, bits: int = 32) -> int:
    """Return the argument. Raises ValueError unless it is a whole number that fits into `bits` bits."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        digits = isinstance(given, str) and given.strip().lstrip("-").isdigit()
        raise refusal(call, argument, given, f"a whole number of {bits} bits", str(given).strip() if digits else "")
    return given


def count(call: str, argument: str, given: object) -> None:
    """Raise ValueError unless the argument is a whole number of at least 0, or None."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
        raise refusal(call, argument, given, "a whole number of at least 0, or None", f"{call}({argument}=10)")


def seconds(call: str, given: object) -> None:
    """Raise ValueError unless the time-out is a number or None."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
        raise refusal(call, "timeout", given, "seconds as a number, or None", f"{call}(timeout=1.5)")


def callback(call: str, argument: str, given: object, signature: str) -> None:
    """Raise ValueError unless the argument can be called or is None."""
    if given is not None and not callable(given):
        instead = f"{argument}=stored, not {argument}=stored(…), for a function stored({signature})"
        raise refusal(call, argument, given, f"a function of ({signature})", instead)


def partition(call: str, given: object) -> Any:
    """Return the argument. Raises ValueError unless it has a topic name and a partition number."""
    if not isinstance(getattr(given, "topic", None), str) or not isinstance(getattr(given, "partition", None), int):
        raise refusal(call, "a partition", given, "a TopicPartition", 'TopicPartition("orders", 0)')
    return given


def settings(call: str, given: object) -> dict[str, Any]:
    """Return the settings as a dict, {} for None. Raises ValueError unless they are a mapping with str keys."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        more = ', group_id="workers"' if call == "ShareConsumer" else ""
        servers = repr(given) if isinstance(given, str) else '"host:port"'
        raise refusal(call, "settings", given, "a dict, or keywords", f"{call}(bootstrap_servers={servers}{more})")
    for name in given:
        if not isinstance(name, str):
            raise refusal(call, "the name of a setting", name, 'text such as "client.id"')
    return dict(given)
