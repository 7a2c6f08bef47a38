"""The namespace that applies where a command names none: kubectl's."""

from __future__ import annotations

from webhook.cli.options import Source, VmName
from webhook.cluster.selection import suggest_files
from webhook.errors import InputError, quote
from webhook.k8s.types.selectors import is_name


def namespace_of(source: Source) -> str:
    """The namespace of what names none: kubectl's, which is that of the context; with files, ``default``.

    Raises:
        InputError: the kubeconfig cannot be used, or its namespace is not a valid name.
    """
    if source.cluster_from:
        return "default"
    from webhook.k8s.client.transport import default_namespace

    with suggest_files(source.kubeconfig):
        namespace = default_namespace(source.kubeconfig)
    if not is_name(namespace):
        what = f"{quote(namespace)} is not a valid namespace name"
        raise InputError(what, "the context of the kubeconfig", "correct it, or name another one with -n")
    return namespace


def complete(vm_name: VmName, source: Source) -> VmName:
    """Namespace and name of a VM, where the options may name no namespace."""
    namespace, name = vm_name
    return namespace or namespace_of(source), name
