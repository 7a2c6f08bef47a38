"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import click

from hack.reference.markdown import cell, code, table
from webhook.cli.main import main

_HEADER: Final = """\
# Commands

Every command and option of `kubevirt-webhook`. [Using the command line](../command-line.md) explains what commands have
in common, such as their exit statuses. `-h` or `--help` prints the same for one command.

This page is made from the code by `make docs`.
"""


def page() -> str:
    """The whole page, as Markdown."""
    sections = [_section(context) for context in _contexts(_context(main, main.name or "", None))]
    return "\n".join([_HEADER, *sections])


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    # As the program makes it: click takes the names of the help option from the first context of a command.
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """A command and all those within it, in the order of its help."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command
            yield from _contexts(_context(command, name, context))


def _section(context: click.Context) -> str:
    command = context.command
    title = f"## {context.command_path}\n" if context.parent else "## All commands\n"
    usage = f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    text = inspect.cleandoc(command.help or "")
    parts = [title, usage, f"{text}\n"]
    if isinstance(command, click.Group):
        parts.append(table(("command", "meaning"), _commands(context, command)))
    parts.append(table(("option", "meaning"), _options(context)))
    return "\n".join(part for part in parts if part.strip())


def _commands(context: click.Context, group: click.Group) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        path = f"{context.command_path} {name}"
        yield f"[`{name}`](#{path.replace(' ', '-')})", cell(command.get_short_help_str(200))


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record and "--help" not in parameter.opts:
            yield code(record[0]), cell(record[1])
