"""What a refusal proposes: the command that allows what was refused, or that shows which entry denies it (CM-61 (d)).

A node makes these texts for one operation on one resource; a client, which knows what it is and which topics it uses,
replaces the operation by the shorthand for all that it needs (CL-164). Pure.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from kip932.printable import printable

#: Before each proposal; what is before it says what is refused (CM-61 (l)).
ADMINISTRATOR: Final = "An administrator can "
#: What a command has in place of a topic that the node may not name, or that the caller did not name.
ANY_TOPIC: Final = "--topic NAME"
_DENIED: Final = "An entry denies it, whatever other entries allow. "
_FILE: Final = "--command-config FILE"
_ADD: Final = "sharegroups acls add --allow-principal"
_EXPLAIN: Final = "sharegroups acls explain --principal"
#: A word as shlex.quote writes it.
_WORD: Final = r"""(?:'[^']*'|"'"|[\w@%+=:,./-])+"""
_ADDING: Final = re.compile(rf"{_ADD} (?P<principal>{_WORD})(?: {_WORD})*? {_FILE}", re.ASCII)
_ANY_TOPIC: Final = re.compile(rf"(?P<before>{_EXPLAIN} {_WORD}(?: {_WORD})*?) {ANY_TOPIC} ", re.ASCII)


def argument(text: str) -> str:
    """Quote a name that a caller has chosen for a command line that is proposed: it must neither begin another command
    nor control the terminal into which it is copied."""
    return shlex.quote(printable(text))


def allowing(principal: str, what: str) -> str:
    """Return what an administrator can do to allow it. `what`: the options that say what is allowed."""
    return f"{ADMINISTRATOR}allow it: {_ADD} {argument(principal)} {what} {_FILE}"


def explaining(principal: str, host: str, what: str) -> str:
    """Return that an entry denies it, and how an administrator sees which. `host`: the caller's address if the entry is
    about callers from there alone, or "". Nothing more of the entry is shown to the caller, who may be one of many."""
    where = f" --host {argument(host)}" if host else ""
    return (
        f"{_DENIED}{ADMINISTRATOR}see which one, and how to remove it: "
        f"{_EXPLAIN} {argument(principal)}{where} {what} {_FILE}"
    )


def proposes(text: str) -> bool:
    """Return whether a text already says what to do about a missing right, or why no further entry would help."""
    return any(words in text for words in ("sharegroups acls", "super.users", _DENIED.rstrip()))


def fitted(text: str, role: str, topic: str | None) -> str:
    """Return a refusal's text with the options `role` in place of those that its command allows, and with the topic's
    name, if it is given, where its command lacks one."""
    text = _ADDING.sub(lambda found: f"{_ADD} {found['principal']} {role} {_FILE}", text, count=1)
    if topic is None:
        return text
    return _ANY_TOPIC.sub(lambda found: f"{found['before']} --topic {argument(topic)} ", text, count=1)
