"""The third answer to a question about the cluster, beside yes and no: it is not known now."""

from __future__ import annotations

from typing import Final, TypeVar

from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey
from webhook.kubevirt.config import ClusterConfig

T = TypeVar("T")

_CONFIGURATION: Final = "KubeVirt's configuration"


class Unreadable(Exception):  # noqa: N818 - a state of affairs
    """A policy needs a fact that could not be read; it must not take that for the fact's absence.

    Args:
        why: the cause as a clause.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def read(facts: Facts, key: Key[T], noun: str) -> T | None:
    """The fact; None where the API server said 404.

    Args:
        facts: the review's facts.
        key: the fact to read.
        noun: a noun phrase for the fact, for the clause.

    Raises:
        Unreadable: it could not be read.
        NotRead: it has not been read yet; for the Reviewer.
    """
    fact = facts.get(key)
    if isinstance(fact, Unavailable):
        raise _unreadable(noun, fact)
    return fact


def read_configuration(facts: Facts) -> ClusterConfig | None:
    """KubeVirt's configuration; None where the cluster has no KubeVirt.

    Args:
        facts: the review's facts.

    Raises:
        Unreadable: the KubeVirt object could not be read, or its configuration is invalid.
        NotRead: it has not been read yet; for the Reviewer.
    """
    install = read(facts, KubeVirtKey(), _CONFIGURATION)
    configuration = install.configuration if install else None
    if isinstance(configuration, Unavailable):
        raise _unreadable(_CONFIGURATION, configuration)
    return configuration


def _unreadable(noun: str, fact: Unavailable) -> Unreadable:
    return Unreadable(f"{noun} cannot be read: {fact.why}")
