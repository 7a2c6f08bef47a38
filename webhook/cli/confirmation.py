"""The cluster that a command changes, and the answer on a terminal before it does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from webhook.cli import write
from webhook.text import visible

if TYPE_CHECKING:
    from webhook.k8s.client.transport import KubernetesTransport


def cluster_of(api: KubernetesTransport) -> str:
    """The name of the cluster, on one line whatever the kubeconfig holds."""
    return visible(api.cluster)


def name_cluster(api: KubernetesTransport) -> None:
    """Write which cluster a command is about."""
    write.line(f"cluster: {cluster_of(api)}")


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on: without a terminal, where no answer can come, always.

    Args:
        question: what is asked on a terminal.
        yes: the answer was given beforehand.
    """
    return yes or not is_on_terminal() or click.confirm(question)


def is_on_terminal() -> bool:
    """Whether an answer can come."""
    return sys.stdin.isatty()
