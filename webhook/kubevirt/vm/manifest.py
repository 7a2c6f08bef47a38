"""Reading a whole VirtualMachine."""

from __future__ import annotations

from typing import Any

from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import Json, decode
from webhook.kubevirt.rules import NEWEST, Rules


def read_vm(vm: Any, rules: Rules = NEWEST) -> Json:
    """A VM as KubeVirt reads it, with the template that its schema demands.

    Raises:
        InputError: it is malformed.
    """
    decoded = decode(rules.types.vm, vm)
    if "template" not in decoded["spec"]:
        raise InputError("is missing", "spec.template")
    return decoded
