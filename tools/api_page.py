"""Generates the page of the Python API from the public names of `sharegroups` and `sharegroups.aio`.

It shows the signature of each name as written, and its docstring, which names the errors too. This module adds only
text that fits in no docstring.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import Any, Final

import sharegroups
from kip932.errors import FencedError, RetriableError
from shard_runtime.rpc.table import UNSERVED
from sharegroups import admin_values, aio, errors
from sharegroups.administration import group_admin, group_listing, log_dirs, log_reading
from sharegroups.aio import admin, producer
from sharegroups.connection import wire
from sharegroups.consuming import ack_ledger
from sharegroups.producing import delivery_reports, transactions

_INTRODUCTION = """# Python API

Made from the docstrings by `make docs`; do not edit. Everything here is imported from `sharegroups`, the asyncio
clients from `sharegroups.aio`. Settings have [a page of their own](client-settings.md).

Every method of a client raises `IllegalStateError` after `close`. A call to the cluster raises a `KafkaError` when it
fails as a whole. A call about several things returns each one's result or error.
"""
_ASYNCIO = """## sharegroups.aio

The same clients for asyncio, with the same settings. Create them inside the event loop, and use them with `async with`.
Methods without a text here are described at the blocking client of the same name.
"""
_ANSWERS = """## What Admin returns

Frozen values, in `sharegroups.admin_values`.
"""
_UNSERVED = """## What this version does not serve

The services of this version do not have these RPCs, and answer UNIMPLEMENTED: in Python UnsupportedVersionError, whose
text names the call and the node. The methods above that need one are marked. A client that is newer than its services
meets the same error for what they do not have yet.
"""
_SHORT = """## Short names of types
"""
_ERRORS = """## Errors

Methods raise these errors, return them for parts of a request, or pass them to callbacks. *Retriable*: the same request
may succeed later; the clients have retried it until their time-out. *Fenced*: a newer instance has taken over.

| Error | Number | Kind | Meaning |
|---|---|---|---|
"""
#: Where a docstring names rules of the specification: "(CL-21, CM-3)", "(GC-101 to GC-106)" or " See CL-23.".
_RULES: Final = re.compile(r" \([A-Z]+-\d+[a-z]?(?:(?:, | to )[A-Z]+-\d+[a-z]?)*\)| See [A-Z]+-\d+[a-z]?\.")
_CLIENTS: Final = (
    sharegroups.Admin, sharegroups.Producer, sharegroups.ShareConsumer, aio.Admin, aio.Producer, aio.ShareConsumer
)  # fmt: skip
#: Type aliases in the signatures, and the modules that define them.
_ALIASES: Final = {
    "AckCallback": ack_ledger,
    "CommitResult": ack_ledger,
    "Errors": admin,
    "Headers": producer,
    "Offsets": group_admin,
    "OnDelivery": delivery_reports,
}
#: Methods that only the asyncio clients have. Other methods that only they have are there for the blocking clients.
_ONLY_IN_ASYNCIO: Final = {"Producer": ("send",)}


#: Public methods of a class that are for the library's own use.
_OWN: Final = {"JobInfo": ("of",)}


#: Methods whose RPCs another class, module or function calls.
_PARTS: Final[Mapping[str, Any]] = {
    "describe_log_dirs": log_dirs,
    "list_groups": group_listing,
    "read_records": log_reading.read,
    "transaction": transactions.Transactions,
}


def api_page() -> str:
    """Return the text of the page."""
    names = [name for name in sharegroups.__all__ if name not in errors.__all__ and name != "aio"]
    public = {name: getattr(sharegroups, name) for name in sorted(names)}
    parts = [_INTRODUCTION, *map(_public, public.values()), _ASYNCIO]
    for name in sorted(aio.__all__):
        given, blocking = getattr(aio, name), public[name]
        wanted = {*_methods(blocking), *_ONLY_IN_ASYNCIO.get(name, ())}
        methods = {word: method for word, method in _methods(given).items() if word in wanted}
        parts.append(_class(given, 3, methods, said=_methods(blocking)))
    answers = [one for one in vars(admin_values).values() if _is_of(one, admin_values.__name__)]
    parts += [_ANSWERS, *(_class(one, 3, _methods(one)) for one in answers if one.__name__ not in public)]
    parts += [_SHORT, *(f"- `{name}` is `{_alias(name, module)}`" for name, module in _ALIASES.items()), ""]
    lines = [f"- `{path.rpartition('.')[2]}`: {why}" for path, why in UNSERVED.items()]
    parts += [_UNSERVED, *lines, ""]
    return "\n".join([*parts, _ERRORS + "\n".join(map(_error_row, sorted(errors.__all__)))]) + "\n"


def _public(given: Any) -> str:
    """Return the text for one name of `sharegroups`: a class, or a function."""
    if inspect.isclass(given):
        own = _OWN.get(given.__name__, ())
        return _class(given, 2, {name: method for name, method in _methods(given).items() if name not in own})
    name = given.__name__
    return "\n".join([f"## {name}", "", f"`{name}{_signature(given, skipped=0)}`", "", _text(given), ""])


def _is_of(given: object, module: str) -> bool:
    return inspect.isclass(given) and given.__module__ == module


def _class(given: type, level: int, methods: Mapping[str, Any], said: Mapping[str, Any] | None = None) -> str:
    """Return the text for a class: its heading, constructor and docstring, and a line for each method or member."""
    lines = [f"{'#' * level} {given.__name__}", ""]
    if given in _CLIENTS:
        lines += [f"`{given.__name__}{_signature(inspect.unwrap(vars(given)['__init__']))}`", ""]
    elif fields := _fields(given):
        lines += [f"`{given.__name__}({fields})`", ""]
    lines += [_text(given), ""]
    if issubclass(given, Enum):
        lines += [", ".join(f"`{member.name}` = {member.value}" for member in given) + ".", ""]
    elif methods:
        marks = {name: mark for name in methods if given in _CLIENTS and (mark := _mark(given, name))}
        lines += [*_method_lines(methods, said or {}, marks), ""]
    return "\n".join(lines)


def _method_lines(methods: Mapping[str, Any], said: Mapping[str, Any], marks: Mapping[str, str]) -> Iterator[str]:
    for name, method in methods.items():
        text = _text(method)
        if name in said and text == _text(said[name]):
            text = ""
        yield f"- {_call(name, method)}" + (f": {text}" if text else "") + marks.get(name, "")


def _mark(client: type, name: str) -> str:
    """Return a note for a method that needs an RPC that no service of this version has; empty for others."""
    missing = sorted(path.rpartition("/")[2] for path in rpcs_of(client, name) if path in UNSERVED)
    return f" **Not served by this version** ({', '.join(missing)})." if missing else ""


def rpcs_of(client: type, name: str) -> set[str]:
    """Return the paths of the RPCs that a client's method calls, found by the words `wire.NAME` in its source.

    Private methods that it calls are followed, as are the parts in `_PARTS`. A blocking client calls the same RPCs as
    the asyncio one.
    """
    asynchronous = getattr(aio, client.__name__)
    if name in _PARTS:
        sources = [inspect.getsource(_PARTS[name])]
    else:
        sources, seen, waiting = [], set[str](), [name]
        while waiting:
            word = waiting.pop()
            method = inspect.getattr_static(asynchronous, word, None)
            if word not in seen and inspect.isfunction(method):
                seen.add(word)
                sources.append(inspect.getsource(method))
                waiting += re.findall(r"self\.(_\w+)", sources[-1])
    named = {word for source in sources for word in re.findall(r"\bwire\.([A-Z_]+)\b", source)}
    return {getattr(wire, word).path for word in named}


def _methods(given: type) -> dict[str, Any]:
    """Return public methods and properties, those of base classes first, in the order of the source."""
    found: dict[str, Any] = {}
    for owner in reversed(inspect.getmro(given)):
        if owner.__module__.split(".")[0] == "sharegroups":
            found.update({name: value for name, value in vars(owner).items() if name[0] != "_" and _is_shown(value)})
    return found


def _is_shown(value: Any) -> bool:
    return isinstance(value, property | classmethod) or inspect.isfunction(value)


def _call(name: str, method: Any) -> str:
    if isinstance(method, property):
        return f"`{name}: {method.fget.__annotations__.get('return', 'Any')}`"
    function: Callable[..., Any] = inspect.unwrap(getattr(method, "__func__", method))
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    if function is not method and not isinstance(method, classmethod):  # a context manager
        prefix = "async with " if inspect.isasyncgenfunction(function) else "with "
    return f"`{prefix}{name}{_signature(function)}`"


def _fields(given: type) -> str:
    """Return the fields of a value class, with their types as written."""
    if not dataclasses.is_dataclass(given):
        usual: Mapping[str, object] = getattr(given, "_field_defaults", {})
        return ", ".join(
            f"{name}: {_annotation(given.__annotations__[name])}"
            + (f" = {_value(usual[name])}" if name in usual else "")
            for name in getattr(given, "_fields", ())
        )
    shown = (one for one in dataclasses.fields(given) if not one.name.startswith("_"))
    return ", ".join(f"{one.name}: {one.type}{_default(one)}" for one in shown)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {field.default!r}"
    return "" if field.default_factory is dataclasses.MISSING else f" = {field.default_factory()!r}"


def _signature(function: Callable[..., Any], skipped: int = 1) -> str:
    """Return the parameters and the return type, without the first parameter, which is self or cls of a method."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for parameter in list(signature.parameters.values())[skipped:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_parameter(parameter))
    returned = signature.return_annotation
    known = returned is not signature.empty and returned not in {"None", "Iterator[None]", "AsyncIterator[None]"}
    return f"({', '.join(parts)})" + (f" -> {_annotation(returned)}" if known else "")


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}: {_annotation(parameter.annotation)}"
    return f"{parameter.name}: {_annotation(parameter.annotation)} = {_value(parameter.default)}"


def _value(given: object) -> str:
    """Return a default as written in a program."""
    return f"{type(given).__name__}.{given.name}" if isinstance(given, Enum) else repr(given)


def _alias(name: str, module: ModuleType) -> str:
    """Return the right side of `name = …` in the module's source."""
    written = re.search(rf"^{name} = (.+)$", inspect.getsource(module), re.MULTILINE)
    if written is None:
        raise ValueError(f"{module.__name__} does not define {name}")
    return written.group(1)


def _annotation(given: Any) -> str:
    return str(getattr(given, "__forward_arg__", given))


def _text(given: Any) -> str:
    """Return the docstring as one paragraph, without ids of rules. Raises ValueError for a public name without one."""
    text = _RULES.sub("", " ".join((inspect.getdoc(given) or "").split()))
    if not text:
        raise ValueError(f"{given!r} is public and has no docstring")
    return text


def _error_row(name: str) -> str:
    error = getattr(errors, name)
    number = str(error.code) if "code" in vars(error) else ""
    kinds = {"retriable": RetriableError, "fenced": FencedError}
    kind = ", ".join(word for word, base in kinds.items() if issubclass(error, base))
    return f"| `{name}` | {number} | {kind} | {_text(error)} |".replace("  ", " ")
