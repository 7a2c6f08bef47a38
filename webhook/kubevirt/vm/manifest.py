"""Reading a whole VirtualMachine."""

from __future__ import annotations

from typing import Any

from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import Json, check_size, decode, share
from webhook.kubevirt.rules import NEWEST, Rules


def read_vm(vm: Any, rules: Rules = NEWEST) -> Json:
    """A VM as KubeVirt reads it, with the template that its schema demands.

    Raises:
        InputError: it is malformed.
    """
    return _with_template(decode(rules.types.vm, vm))


def share_vm(vm: Any, rules: Rules) -> Json:
    """A VM as KubeVirt writes what it has read, which shares with the given one whatever stays as it is.

    For those who change nothing of it.

    Raises:
        InputError: it is malformed.
    """
    check_size(vm)
    return _with_template(share(rules.types.vm, vm))


def _with_template(vm: Json) -> Json:
    if "template" not in vm["spec"]:
        raise InputError("is missing", "spec.template")
    return vm
