"""The VM that a command is asked about."""

from __future__ import annotations

from webhook.errors import InputError, quote
from webhook.placement import syntax


def parse_machine(vm: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name of a VM, from ``[NAMESPACE/]VM`` and the option -n.

    Raises:
        InputError: they contradict each other, or are not names.
    """
    before, slash, name = vm.rpartition("/")
    if slash and namespace and namespace != before:
        raise InputError(f"it names the namespace {quote(before)} and -n {quote(namespace)}", vm, "drop one")
    where = before if slash else namespace or "default"
    for text, what in ((where, "namespace"), (name, "VM")):
        if not syntax.is_name(text):
            raise InputError(f"{quote(text)} is no name of a {what}", "VM", "write NAMESPACE/NAME")
    return where, name
