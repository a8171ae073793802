"""Accepts actions in Kafka's notation: as one of the options instead of as a sub-command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem

from kip932.nearest_name import did_you_mean
from sharegroups.cli.output import UsageFailure


class KafkaLayout(click.Group):
    """Treats `--describe`, anywhere on the command line, as the sub-command `describe`, and likewise for each of
    `actions`.

    A command line that begins with a sub-command is left as it is.
    """

    #: In a context's `meta` if the command line is in Kafka's notation, for a command whose own output is another one.
    META: Final = "sharegroups.kafka_layout"
    #: The sub-commands that may be written this way, in the order in which an error names them.
    actions: Sequence[str] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageFailure if there is no action, more than one, or an option of another
        action."""
        if args and args[0] not in self.commands and args[0].startswith("-"):
            args = self._with_command(ctx, args)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete as click does, and the actions as options."""
        words = [word for word in self._words() if incomplete.startswith("-") and word.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, words)]

    def _with_command(self, ctx: click.Context, args: list[str]) -> list[str]:
        found = [word.removeprefix("--") for word in dict.fromkeys(args) if word in self._words()]
        alone = {*ctx.help_option_names, "--version"}
        if not found and (ctx.resilient_parsing or set(args) & alone):
            return args  # the shell is completing the line, so its action may still follow
        if len(found) != 1 and not ctx.resilient_parsing:
            words = ", ".join(self._words())
            hint = "" if found else self._meant(ctx, args)
            raise UsageFailure(f"Command must include exactly one action: {words}.{hint}", ctx)
        action = found[0]
        rest = [word for word in args if word != f"--{action}"]
        if not ctx.resilient_parsing:
            self._check_options(ctx, action, rest)
        ctx.meta[self.META] = True
        return [action, *rest]

    def _meant(self, ctx: click.Context, args: Sequence[str]) -> str:
        """Return a hint for a command line without an action: the sub-command is not the first word, it is written as
        an option although Kafka has no such option, or the action has a typo. Empty if none of these applies."""
        commands = [word.removeprefix("--") for word in args if word.removeprefix("--") in self.commands]
        if commands:
            return f" The command comes first, then its options: {ctx.command_path} {commands[0]} --option …"
        options = {option for name in self.actions for option in _options(self.commands[name])}
        unknown = [word for word in args if word.startswith("--") and word.partition("=")[0] not in options]
        return next(filter(None, (did_you_mean(word, self._words()) for word in unknown)), "")

    def _words(self) -> list[str]:
        return [f"--{action}" for action in self.actions]

    def _check_options(self, ctx: click.Context, action: str, words: Sequence[str]) -> None:
        """Raise UsageFailure for an option that another action has and this one does not (CT-19)."""
        own = _options(self.commands[action])
        others = {option for name in self.actions for option in _options(self.commands[name])} - own
        for word in words:
            option = word.partition("=")[0]
            if option in others:
                raise UsageFailure(f'Option "[{option[2:]}]" can\'t be used with option "[{action}]"', ctx)


def _options(command: click.Command) -> set[str]:
    return {word for parameter in command.params for word in parameter.opts if word.startswith("--")}
