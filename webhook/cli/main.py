"""The command line: a table of commands whose modules are imported only when they run.

`kubevirt-webhook --help` answers in the time that click takes to load; the server's libraries cost several times that.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import click

from webhook import __version__
from webhook.cli.options import CommandGroup

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Command: module and attribute, and the line that `--help` shows without importing it.
_COMMANDS: Final = {
    "serve": ("webhook.cli.serve:serve", "Answer admission requests."),
    "review": ("webhook.cli.review.command:review", "Evaluate AdmissionReviews or manifests without a server."),
    "test": ("webhook.cli.cases.command:test", "Run declarative tests of decisions."),
    "explain": ("webhook.cli.explain:explain", "Explain a code, a VM, a migration, a drain, or how pods are spread."),
    "expand": ("webhook.cli.expand:expand", "Show the VMI that KubeVirt would create for a VM, and why."),
    "demo": ("webhook.cli.demo:demo", "Run the server with an example cluster."),
    "scheduler": ("webhook.cli.scheduler:scheduler", "Check a kube-scheduler configuration for VMs, or print one."),
    "install": ("webhook.cli.installation:install", "Install or upgrade kubevirt-webhook in a cluster."),
    "hand-over": ("webhook.cli.installation:hand_over", "Pass an installation from one tool to another."),
    "doctor": ("webhook.cli.doctor:doctor", "Check an installation and suggest fixes."),
    "bench": ("webhook.cli.bench.command:bench", "Measure what admission costs in your cluster, by dry runs."),
    "uninstall": ("webhook.cli.installation:uninstall", "Remove kubevirt-webhook from a cluster."),
    "cleanup": ("webhook.cli.installation:cleanup", "Remove what kubevirt-webhook wrote into VMs."),
    "manifests": ("webhook.cli.admin:manifests", "Print webhook configurations, or policies that need no server."),
    "audit": ("webhook.cli.admin:audit", "Describe the audit lines."),
    "config": ("webhook.cli.admin:config", "Show, check or describe the settings."),
    "completion": ("webhook.cli.completion:completion", "Print a completion script for your shell."),
    "version": ("webhook.cli.admin:version", "Print the version."),
}

# 128 + SIGINT, as shells report it.
_INTERRUPTED: Final = 130
_INVALID: Final = 2


class Lazy(CommandGroup):
    """A group that lists its commands without importing them."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program, with open standard streams: a closed one would become the next file that is opened."""
        while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(opened)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
        _check_packages()
        # Ctrl-C ends the process at once until a command runs; click would report it as exit status 1.
        is_replaced = _replace_handler(signal.default_int_handler, signal.SIG_DFL)
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            # Of commands, and of --help and --version, which are written before one is invoked.
            from webhook.cli import write

            reason = error.strerror or str(error) or type(error).__name__
            write.error(f"Error: {error.filename or 'standard output'}: {reason}")
            sys.exit(_INVALID)
        finally:
            if is_replaced:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which a new user needs them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin with a text, without importing them."""
        from click.shell_completion import CompletionItem

        items = [CompletionItem(name, help=text) for name, text in self.summaries(ctx) if name.startswith(incomplete)]
        return items or super().shell_complete(ctx, incomplete)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """The table's own sentences, without importing the commands."""
        return [(name, text) for name, (_, text) in _COMMANDS.items()]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Invalid input ends in one sentence and exit status 2, Ctrl-C in exit status 130."""
        from webhook.cli import write
        from webhook.errors import InputError

        try:
            _replace_handler(signal.SIG_DFL, signal.default_int_handler)
            return super().invoke(ctx)
        except InputError as error:
            write.error(f"Error: {error}")
            ctx.exit(_INVALID)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
        except click.Abort as error:
            # A prompt turns Ctrl-C, and the end of its input, into this.
            if isinstance(error.__context__, KeyboardInterrupt):
                ctx.exit(_INTERRUPTED)
            raise
        except BrokenPipeError:
            # The reader of the output has closed it. That is no decision, so it is not the exit status of a denial.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            ctx.exit(141)
        except TimeoutError:
            # A TimeoutError of asyncio has no text, and none says what did not answer. It is an OSError, too, which
            # `main` would report as a file.
            write.error("Error: the request timed out; check that the API server can be reached")
            ctx.exit(_INVALID)


def _replace_handler(present: Any, other: Any) -> bool:
    """Set another handler of Ctrl-C in place of the one that is expected; returns whether that was there."""
    is_present = signal.getsignal(signal.SIGINT) is present and threading.current_thread() is threading.main_thread()
    if is_present:
        signal.signal(signal.SIGINT, other)
    return is_present


def _check_packages() -> None:
    """End the program with one sentence where another distribution's files are in its packages."""
    # The top-level packages. Other distributions have packages of these names, and pip overwrites files in silence.
    for name in ("webhook", "certs"):
        package = sys.modules.get(name) or importlib.import_module(name)
        if getattr(package, "DISTRIBUTION", None) != "kubevirt-webhook":
            where = os.path.dirname(getattr(package, "__file__", None) or "") or "an unknown place"  # noqa: PTH120
            what = f'the package "{name}" in {where} is not that of kubevirt-webhook: another distribution has a'
            fix = "package of this name; install kubevirt-webhook into a virtual environment of its own"
            sys.stderr.write(f"Error: {what} {fix}\n")
            sys.exit(_INVALID)


@click.group(
    "kubevirt-webhook", cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, "-V", "--version", prog_name="kubevirt-webhook", message="%(prog)s %(version)s")
def main() -> None:
    """Admission webhooks that control where KubeVirt virtual machines run, and record the reason for each decision.

    Exit status 2 means invalid input or a cluster that cannot be reached, unless the command's help says otherwise; 130
    that Ctrl-C ended the command.
    """


def plugin() -> None:
    """Run as a plugin of kubectl, which finds ``kubectl-kubevirt_webhook`` in PATH."""
    main(prog_name="kubectl kubevirt-webhook")


if __name__ == "__main__":
    main(prog_name="kubevirt-webhook")
    sys.exit()
