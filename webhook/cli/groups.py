"""Groups of commands, whose ``--help`` has a whole sentence for each."""

from __future__ import annotations

import click


class CommandGroup(click.Group):
    """A group whose ``--help`` cuts no sentence."""

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """The commands, each with the first sentence of its help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, _first_sentence(command.help or "")) for name, command in commands if command]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command table of ``--help``, whose sentences wrap."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".") + "."
