"""Each log line of the services has a fixed name, which alerts and searches can rely on; details are in its fields."""

import ast
import re
from collections.abc import Iterator

from tests.packaging.test_tidy import PYTHON, name_of

SERVICES = "services/"
NAME = re.compile(r"[a-z][a-z0-9_]*")
LEVELS = frozenset({"critical", "debug", "error", "exception", "fatal", "info", "warning"})
#: Functions that log the name given as their first argument; calls of them are treated as calls of a logger.
HELPERS = frozenset({"log_changes", "report_wait"})
#: File → call → why the name that it logs is not a constant there.
PASSED_ON = {
    "services/shard_runtime/rate_limited_log.py": {
        "getattr(self._log, level)(event)": "its callers' names, which are checked where they call a RateLimitedLog",
        "getattr(self._log, kept.level)(kept.event)": "the same, at the end of an interval",
    },
    "services/shard_runtime/record_log/redis/startup_checks.py": {
        "log.warning(event)": "the callers of `report_wait` are checked",
    },
    "services/shard_runtime/rpc/change_log.py": {
        "log.info(event)": "the callers of `log_changes` are checked",
    },
}


def unfixed(source: str) -> Iterator[tuple[int, str]]:
    """Yield the calls that log anything other than a constant name in snake case: the line, and the call with only its
    first argument."""
    tree = ast.parse(source)
    constants, aliases = _assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _logs(node, aliases):
            first = next((each.value for each in node.keywords if each.arg == "event"), None)
            first = node.args[0] if node.args else first
            if first is None:  # not a logger, but for example a future: `task.exception()`
                continue
            text = constants.get(first.id) if isinstance(first, ast.Name) else None
            text = first.value if isinstance(first, ast.Constant) else text
            if not isinstance(text, str) or not NAME.fullmatch(text):
                yield node.lineno, f"{ast.unparse(node.func)}({ast.unparse(first)})"


def _logs(call: ast.Call, aliases: set[str]) -> bool:
    """Return whether it calls a logger, a RateLimitedLog, a helper, or a logger's method through a name assigned to
    it."""
    match call.func:
        case ast.Attribute(attr=name):
            return name in LEVELS | HELPERS
        case ast.Name(id=name):
            return name in aliases | HELPERS
        case ast.Call(func=ast.Name(id="getattr"), args=[logger, *_]):
            return "log" in ast.unparse(logger)
    return False


def _assigned(tree: ast.Module) -> tuple[dict[str, object], set[str]]:
    """Return the module's constants, and the names assigned to a logger's method: `say = log.debug if quiet else
    log.info`."""
    constants: dict[str, object] = {}
    aliases: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if node in tree.body and isinstance(value, ast.Constant):
                    constants[name] = value.value
                if any(_is_method(each) for each in _branches(value)):
                    aliases.add(name)
    return constants, aliases


def _branches(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.IfExp):
        yield from (*_branches(value.body), *_branches(value.orelse))
    else:
        yield value


def _is_method(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in LEVELS and "log" in ast.unparse(value.value)


def test_every_log_line_of_the_services_has_a_fixed_name() -> None:
    paths = [path for path in PYTHON if name_of(path).startswith(SERVICES)]
    found = {name_of(path): list(unfixed(path.read_text(encoding="utf-8"))) for path in paths}
    wrong = [
        f"{name}:{line}: {call}: the name is a constant in snake case, and what explains it a field"
        for name, calls in found.items()
        for line, call in calls
        if call not in PASSED_ON.get(name, {})
    ]
    assert not wrong, "\n".join(wrong)
    needed = {name: {call for _, call in calls} for name, calls in found.items() if calls}
    assert needed == {name: set(calls) for name, calls in PASSED_ON.items()}, "an exception is no longer needed"


def test_what_logs_and_what_is_a_name() -> None:
    source = """
LINE: Final = "shard_dropped"
SENTENCE = "the shard is dropped"
log.info("shard_dropped", shard=3)
log.warning(LINE)
log.warning(SENTENCE)
log.error("the shard is dropped; it is claimed again")
log.error(f"shard_{number}")
self._lines.warning("Shard dropped", key=1)
self._lines.info(event="shard dropped", key=1)
self._faults.error(what, key=1)
task.exception()
log_changes("topics created", context, [])
wait.report_wait(f"{store}")
say = log.debug if quiet else log.info
say("shard_dropped")
say("shard dropped" if quiet else "shard_dropped")
getattr(log, level)(event)
log.exception("shard_" + "dropped")
print("shard dropped")
number.info
"""
    assert [line for line, _ in unfixed(source)] == [6, 7, 8, 9, 10, 11, 13, 14, 17, 18, 19]
    assert list(unfixed('log.error(what, key="x")')) == [(1, "log.error(what)")]
    assert list(unfixed('log.error("9_lives")')) == [(1, "log.error('9_lives')")]
