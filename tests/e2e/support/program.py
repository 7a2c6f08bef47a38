"""The program as the cluster's admin runs it, or another user."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from webhook.cli.main import main

from .access import Access
from .pki import ADMIN, Identity


def command(access: Access, *arguments: str | Path, user: Identity = ADMIN, check: bool = True) -> Result:
    """Runs a command with a user's kubeconfig.

    In this process: an interpreter of its own for each would take longer than what most commands do.
    """
    return run(*arguments, f"--kubeconfig={access.kubeconfig_for(*user)}", check=check)


def run(*arguments: str | Path, check: bool = True) -> Result:
    """Runs a command; with ``check``, a failure raises and says what the command said."""
    done = CliRunner().invoke(main, [*map(str, arguments)], prog_name="kubevirt-webhook", catch_exceptions=False)
    assert not check or done.exit_code == 0, done.output
    return done
