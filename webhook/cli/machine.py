"""The VM that is the argument of a command."""

from __future__ import annotations

from webhook.errors import InputError, quote
from webhook.k8s.types.selectors import is_name


def parse_machine(vm: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name of a VM, from ``[NAMESPACE/]VM`` and the option -n.

    Raises:
        InputError: two namespaces differ, or a name is not valid.
    """
    before, slash, name = vm.rpartition("/")
    if slash and namespace and namespace != before:
        what = f"the argument names the namespace {quote(before)}, but -n names {quote(namespace)}"
        raise InputError(what, vm, "remove one of them")
    where = before if slash else namespace or "default"
    for text, what in ((where, "namespace"), (name, "VM")):
        if not is_name(text):
            raise InputError(f"{quote(text)} is not a valid {what} name", "VM", "use NAMESPACE/NAME")
    return where, name
