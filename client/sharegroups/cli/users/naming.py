"""Shared by the commands about users: the types of their arguments, and how mechanisms are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from kip932.scram import Mechanism, mechanism_text, refused_user
from sharegroups.admin_values import ScramCredentialInfo

_BY_TEXT: Final = {each.text: each for each in Mechanism}


class UserName(click.ParamType[str]):
    """The name of a user, without `User:`."""

    name = "user"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged. Raises click.BadParameter for one that no user can have."""
        if refused := refused_user(value):
            self.fail(refused, param, ctx)
        return value


MECHANISM: Final = click.Choice(list(_BY_TEXT), case_sensitive=False)


def mechanisms(texts: Iterable[str]) -> list[Mechanism]:
    """Return the mechanisms with these names, each once."""
    return list(dict.fromkeys(_BY_TEXT[text] for text in texts))


def kept_text(infos: Iterable[ScramCredentialInfo]) -> str:
    """Return the mechanisms of a user's passwords, for a sentence."""
    return " and ".join(mechanism_text(info.mechanism) for info in infos)
