"""`kubevirt-webhook explain`: what a decision means, or would be."""

from __future__ import annotations

import click

from webhook.cli.explain_drain import drain
from webhook.cli.explain_migration import migration
from webhook.cli.explain_reason import reason
from webhook.cli.explain_spread import spread
from webhook.cli.explain_vm import vm
from webhook.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def explain() -> None:
    """Explain a reason code, or what kubevirt-webhook, KubeVirt, or a drain would do. This changes nothing."""


explain.add_command(migration)
explain.add_command(drain)
explain.add_command(spread)
explain.add_command(vm)
explain.add_command(reason)
