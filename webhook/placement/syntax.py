"""The syntax of labels (k8s.io/apimachinery, pkg/api/validate/content), and the keys that KubeVirt itself writes.

virt-api checks neither. With a value that is not a valid label value, virt-controller never succeeds in creating the
target pod, and while that migration is unfinished the VM cannot be drained. A key of KubeVirt's own can switch its
rules off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from webhook.errors import InputError, quote

_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_NAME_LENGTH: Final = 63
_SUBDOMAIN_LENGTH: Final = 253
_CHARACTERS: Final = "it must consist of letters, digits, '-', '_', and '.', and begin and end with a letter or digit"

_RESERVED_FAMILIES: Final = (
    *("cpu-vendor", "cpu-feature", "cpu-model", "cpu-model-migration", "host-model-cpu"),
    *("host-model-required-features", "machine-type", "hyperv"),
)
RESERVED_PREFIXES: Final = (
    *(f"{family}.node.kubevirt.io/" for family in _RESERVED_FAMILIES),
    "node-labeller.kubevirt.io/",
)
SCHEDULABLE: Final = "kubevirt.io/schedulable"


def key_problem(key: str) -> str | None:
    """Why a text is not a valid label key, as a clause; None if it is."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return "has more than one '/'"
    if slash and not prefix:
        return "has no prefix before its '/'"
    if slash and len(prefix) > _SUBDOMAIN_LENGTH:
        return f"has a prefix of {len(prefix)} characters (limit {_SUBDOMAIN_LENGTH})"
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return "has a prefix that is not a valid DNS name: it must consist of lower case letters, digits, '-', and '.'"
    if not name:
        return "has no name"
    if len(name) > _NAME_LENGTH:
        return f"has a name of {len(name)} characters (limit {_NAME_LENGTH})"
    if not _NAME.fullmatch(name):
        return f"has an invalid name: {_CHARACTERS}"
    return None


def value_problem(value: str) -> str | None:
    """Why a text is not a valid label value, as a clause; None if it is, as the empty text."""
    if len(value) > _NAME_LENGTH:
        return f"has {len(value)} characters (limit {_NAME_LENGTH})"
    if value and not _NAME.fullmatch(value):
        return f"is not valid: {_CHARACTERS}"
    return None


def is_name(text: str) -> bool:
    """Whether a text can be the name of a VM, a namespace or a node (a DNS subdomain)."""
    return len(text) <= _SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def selector(texts: Iterable[str], where: str) -> dict[str, str]:
    """A node selector as people write it, ``KEY=VALUE`` for each label.

    Args:
        texts: one ``KEY=VALUE`` for each label.
        where: the option or parameter of the texts, for messages.

    Raises:
        InputError: a text is not one, names an impossible label, or there are two values of one label.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{quote(text)} is not a valid KEY=VALUE", where, "write, for example, zone=b")
        if found.setdefault(key, value) != value:
            what = f"{quote(key)} cannot be both {quote(found[key])} and {quote(value)}"
            raise InputError(what, where, "a node has one value of a label; keep one")
    for mistake in find_malformed(found, where):
        raise mistake
    return found


def find_malformed(selector: Mapping[str, str], where: str) -> tuple[InputError, ...]:
    """What is wrong with the keys and values of a node selector; empty if all can be labels.

    Args:
        selector: values by key, as a user wrote them.
        where: the path of the selector, for example ``spec.addedNodeSelector``.
    """
    mistakes = []
    for key, value in sorted(selector.items()):
        if problem := key_problem(key):
            mistakes.append(InputError(f"key {quote(key)} {problem}", where, "no node can have such a label"))
        if problem := value_problem(value):
            what = f"value {quote(value)} of key {quote(key)} {problem}"
            mistakes.append(InputError(what, where, "no node can have such a label"))
    return tuple(mistakes)


def reserved_keys(selector: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of a selector that are KubeVirt's to require, sorted.

    One of ``cpu-vendor`` switches off the rule that keeps a VM on its CPU vendor, ``cpu-feature`` and
    ``cpu-model-migration`` stick to later migrations of a host-model VM, the others lose against KubeVirt's own value.
    """
    return tuple(sorted([key for key in selector if key == SCHEDULABLE or key.startswith(RESERVED_PREFIXES)]))
