"""The command line: a table of commands whose modules are imported only when they run.

`kubevirt-webhook --help` answers in the time that click takes to load; the server's libraries cost several times that.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final

import click

from webhook import __version__

# Command: module and attribute, and the line that `--help` shows without importing it.
_COMMANDS: Final = {
    "serve": ("webhook.cli.serve:serve", "Answer admission requests."),
    "review": ("webhook.cli.review:review", "Judge AdmissionReviews or manifests, without a server."),
    "explain": ("webhook.cli.explain:explain", "Explain a reason code, a migration, or what spreads a VM."),
    "expand": ("webhook.cli.expand:expand", "Show the VMI that KubeVirt would make of a VM, and why."),
    "demo": ("webhook.cli.demo:demo", "See it work over an example cluster."),
    "scheduler": ("webhook.cli.scheduler:scheduler", "Check a kube-scheduler configuration for VMs, or print one."),
    "install": ("webhook.cli.installation:install", "Install into a cluster, or upgrade there."),
    "doctor": ("webhook.cli.doctor:doctor", "Check an installation, and say what to do."),
    "uninstall": ("webhook.cli.installation:uninstall", "Take everything out of a cluster again."),
    "cleanup": ("webhook.cli.installation:cleanup", "Take our marks out of VMs."),
    "manifests": ("webhook.cli.admin:manifests", "Print what the cluster needs to call us."),
    "audit": ("webhook.cli.admin:audit", "Describe the audit lines."),
    "config": ("webhook.cli.admin:config", "Show, check or describe the settings."),
    "version": ("webhook.cli.admin:version", "Print the version."),
}


class Lazy(click.Group):
    """A group that lists its commands without importing them."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program, with standard streams that exist: a closed one would become the next file we open."""
        while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(opened)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which a newcomer needs them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command table of ``--help``."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a mistake of the user ends in one sentence and exit status 2."""
        from webhook.cli import write
        from webhook.errors import InputError

        try:
            return super().invoke(ctx)
        except InputError as error:
            write.error(f"Error: {error}")
            ctx.exit(2)
        except BrokenPipeError:
            # Whoever read us has enough: no decision, so not the exit status of a refusal.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            ctx.exit(141)
        except TimeoutError:
            # asyncio's has no text, and none says what did not answer. It is an OSError, too.
            write.error("Error: timed out waiting for an answer; check that the API server can be reached")
            ctx.exit(2)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            write.error(f"Error: {error.filename or 'the output'}: {reason}")
            ctx.exit(2)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", prog_name="kubevirt-webhook", message="%(prog)s %(version)s")
def main() -> None:
    """Admission webhooks that place KubeVirt virtual machines where they should run, and write down why."""


if __name__ == "__main__":
    main(prog_name="kubevirt-webhook")
    sys.exit()
