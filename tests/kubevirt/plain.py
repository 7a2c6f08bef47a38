"""KubeVirt's webhooks and virt-controller on plain JSON, as the API server calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.kubevirt import webhooks
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.instancetype.revision_store import RevisionStore
from webhook.kubevirt.rejection import Cause, Get
from webhook.kubevirt.rules import Rules, read_vm
from webhook.kubevirt.vm.controller import Round
from webhook.kubevirt.webhooks import VmAdmission


@dataclass(frozen=True, slots=True)
class PlainAdmission(VmAdmission):
    """The answer with the VM as the webhook has changed it (or looked at it); None if not allowed."""

    vm: Json | None = None


def _plain(answer: VmAdmission, vm: Json, rules: Rules) -> PlainAdmission:
    written = encode(rules.vm, vm) if answer.is_allowed else None
    return PlainAdmission(answer.code, answer.message, answer.causes, answer.warnings, written)


def mutate_vm(
    vm: Any, get: Get, new_uuid: Callable[[], str], configuration: ClusterConfig = DEFAULTS, old: Any = None
) -> PlainAdmission:
    rules = configuration.rules
    changed, stored = read_vm(vm, rules), None if old is None else read_vm(old, rules)
    return _plain(webhooks.amend_vm(changed, get, new_uuid, configuration, stored), changed, rules)


def validate_vm(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> PlainAdmission:
    scratch = read_vm(vm, configuration.rules)
    return _plain(webhooks.evaluate_vm(scratch, get, configuration), scratch, configuration.rules)


def create(vmi: Any, configuration: ClusterConfig = DEFAULTS, new_uuid: Callable[[], str] = str) -> Json:
    """A VMI as it is stored, from the VMI as it was posted."""
    shape = configuration.rules.vmi
    created = decode(shape, vmi)
    webhooks.mutate_vmi(created, configuration, new_uuid)
    return encode(shape, created)


def run_round(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> tuple[Json, RevisionStore, Json]:
    """The VM after one round of virt-controller, its revisions, and the VMI that it then creates."""
    whole = Round(vm, get, configuration)
    return whole.sync(), whole._store, encode(configuration.rules.vmi, whole.build()[0])


def build_vmi(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> Json:
    """The VMI that virt-controller creates without a round before."""
    return encode(configuration.rules.vmi, Round(vm, get, configuration).build()[0])


def as_json(cause: Cause) -> dict[str, str]:
    """A cause on the wire, where no field is none at all."""
    written = {"reason": cause.reason, "message": cause.what, "field": cause.field}
    return {key: value for key, value in written.items() if value}
