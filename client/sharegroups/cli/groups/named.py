"""A command that takes names only as options, and suggests the option for a bare name: `groups describe workers`."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import click

from sharegroups.cli.output import UsageFailure


class NamedByOptions(click.Command):
    """A command about groups. It refuses a bare word before it complains about missing options, and suggests the
    option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageFailure for bare words."""
        if not ctx.resilient_parsing and not set(args) & set(ctx.help_option_names):
            given, words, _ = self.make_parser(ctx).parse_args(args=list(args))
            if words:
                many = "arguments" if len(words) > 1 else "argument"
                meant = self._meant(set(given), words)
                raise UsageFailure(f"Got unexpected extra {many} ({' '.join(words)}).{meant}", ctx)
        return super().parse_args(ctx, args)

    def _meant(self, given: set[str], words: Sequence[str]) -> str:
        """Return a hint with the option that was forgotten: the group's, or the topic's if the group is given. Empty if
        neither fits."""
        known = {option: param for param in self.params for option in param.opts if isinstance(param, click.Option)}
        for option in ("--group", "--topic"):
            param = known.get(option)
            if param is None or (param.name in given and not param.multiple):
                continue
            if param.name in given and option == "--group" and "--topic" in known:
                continue
            if len(words) == 1 or param.multiple:
                return f" Did you mean {' '.join(f'{option} {quote(word)}' for word in words)}?"
        return ""
