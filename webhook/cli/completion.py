"""Completion of commands, options and values: scripts for shells, and answers for kubectl."""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from webhook.cli import write

_PROGRAM: Final = "kubevirt-webhook"
_VARIABLE: Final = "_KUBEVIRT_WEBHOOK_COMPLETE"
# As kubectl's library for commands, Cobra, reads the last line of an answer.
_SHELL_COMPLETES_FILES: Final = ":0"
_NO_FILES: Final = ":4"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and values in your SHELL.

    Run it in the shell's startup file. For bash and zsh:

    eval "$(kubevirt-webhook completion bash)"

    For fish:

    kubevirt-webhook completion fish | source
    """
    from webhook.cli.main import main

    kind = get_completion_class(shell)
    assert kind
    script = kind(main, {}, _PROGRAM, _VARIABLE).source_template % kind(main, {}, _PROGRAM, _VARIABLE).source_vars()
    write.data(script)


def kubectl() -> None:
    """Answer kubectl, which calls ``kubectl_complete-kubevirt_webhook`` with the words after the plugin's name."""
    words = sys.argv[1:] or [""]
    for line in answer(words[:-1], words[-1]):
        write.data(line)


def answer(words: list[str], incomplete: str) -> list[str]:
    """What can stand after some words, as Cobra reads it."""
    from webhook.cli.main import main

    items = ShellComplete(main, {}, _PROGRAM, _VARIABLE).get_completions(words, incomplete)
    if any(item.type in ("file", "dir") for item in items):
        return [_SHELL_COMPLETES_FILES]
    return [*(f"{item.value}\t{item.help}" if item.help else str(item.value) for item in items), _NO_FILES]
