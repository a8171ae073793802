"""Masks or removes the password of a store URL, so that it reaches no message, log line or process list."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

_MASK: Final = "***"
#: From the scheme to the last @ of the word: an unescaped @, / or # is part of the password. The form in capitals is
#: not masked, since our own messages show it as a placeholder.
_CREDENTIALS: Final = re.compile(r"(?<=://)(?!(?:USER)?:PASSWORD@HOST\b)\S*@")
_SECRET: Final = re.compile(r"([?&][\w.-]*(?:pass|secret|token)[\w.-]*=)[^&#\s'\"]*", re.IGNORECASE)


def masked(text: str) -> str:
    """The text with all possible secrets of URLs masked: user and password, and passwords among the options."""
    if "://" not in text:
        return text
    return _SECRET.sub(rf"\g<1>{_MASK}", _CREDENTIALS.sub(f"{_MASK}@", text))


def masked_url(url: str) -> str:
    """Like `masked`, but for a text that is meant to be one URL; it may have blanks or lack a scheme."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        scheme, rest = "", url
    _, at, after = rest.rpartition("@")
    return _SECRET.sub(rf"\g<1>{_MASK}", f"{scheme}{colon}{f'{_MASK}@' if at else ''}{after}")


def without_password(url: str) -> str:
    """The URL without its password, for a process that gets the password another way; the user name stays."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{user}@{hosts}" if at and colon and user else hosts
    query = "&".join(each for each in parts.query.split("&") if each and not _SECRET.match(f"?{each}"))
    # Not `urlunsplit`: it drops the slashes of a unix socket's URL, which has no authority.
    return f"{parts.scheme}://{shown}{parts.path}{f'?{query}' if query else ''}"


def with_password(url: str, password: str) -> str:
    """The URL with a separately given password. Raises ValueError when it has one already."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # opening it will report what is wrong
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, present = credentials.partition(":")
    if "://" not in url:
        return url
    if present or "password" in dict(parse_qsl(parts.query)):
        raise ValueError(f"store URL {masked_url(url)}: it holds a password, and another one was given beside it")
    address = f"{user}:{quote(password, safe='')}@{hosts}"
    return urlunsplit(parts._replace(netloc=address))


def has_password(url: str) -> bool:
    """Return whether a URL contains a secret."""
    return masked_url(url) != url
