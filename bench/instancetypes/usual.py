"""The same work as an average good engineer does it in Python: models, rules on what they dump, and make_patch.

KubeVirt's rules themselves are those of `webhook.kubevirt`, so that the two differ only in what stands around them.
They get the models' dumps, which are the copies that they may change.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import jsonpatch

from bench.instancetypes.models import (
    AdmissionReviewModel,
    InstancetypeModel,
    MatcherModel,
    Preference,
    VirtualMachineInstanceModel,
    VirtualMachineModel,
)
from webhook import names
from webhook.cluster.files import FilesCluster
from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.instancetype import preferences
from webhook.kubevirt.instancetype.apply import apply_instancetype
from webhook.kubevirt.rejection import TEMPLATE_BASE, VMI_BASE, Cause, Conflicts
from webhook.kubevirt.vm.size import size_field

Json = dict[str, Any]

_INSTANCETYPE: Final = "VirtualMachineClusterInstancetype"
_PREFERENCE: Final = "VirtualMachineClusterPreference"
_OPT_OUT: Final = names.policy_label(names.INSTANCETYPES)


class Usual:
    """Answers reviews of VMs and VMIs.

    Args:
        cluster: its namespaces, instancetypes and preferences are read once, here.
    """

    def __init__(self, cluster: FilesCluster) -> None:
        self._annotations = {
            item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in cluster.objects("Namespace")
        }
        self._instancetypes = {
            model.metadata.name: model
            for model in map(InstancetypeModel.model_validate, cluster.objects(_INSTANCETYPE))
        }
        self._preferences = {
            model.metadata.name: model for model in map(Preference.model_validate, cluster.objects(_PREFERENCE))
        }

    def virtualmachines(self, body: bytes) -> bytes:
        """The answer to the creation of a VM: the namespace's defaults, if KubeVirt will accept them."""
        return _answered(body, self._defaulted)

    def virtualmachineinstances(self, body: bytes) -> bytes:
        """The answer to the creation of a VMI: filled, unless a VM stands behind it."""
        return _answered(body, self._filled)

    def _found(self, namespace: str) -> tuple[InstancetypeModel, Preference]:
        annotations = self._annotations[namespace]
        return (
            self._instancetypes[annotations[names.DEFAULT_INSTANCETYPE_ANNOTATION]],
            self._preferences[annotations[names.DEFAULT_PREFERENCE_ANNOTATION]],
        )

    def _defaulted(self, sent: Json, namespace: str) -> Json:
        vm = VirtualMachineModel.model_validate(sent)
        spec = vm.spec.template.spec.model_dump(by_alias=True, exclude_none=True)
        chosen = vm.spec.instancetype or vm.spec.preference or size_field(spec["domain"])
        if chosen or names.OFF in (vm.metadata.labels.get(_OPT_OUT), vm.metadata.annotations.get(_OPT_OUT)):
            return sent
        size, wishes = self._found(namespace)
        plain_size, plain_wishes = size.spec.plain(), wishes.spec.plain()
        preferences.architecture(plain_wishes, spec)
        preferences.machine_type(plain_wishes, spec["domain"])
        preferences.storage_class(plain_wishes, vm.plain()["spec"]["dataVolumeTemplates"])
        template = vm.spec.template.metadata.annotations
        if _refused(plain_size, plain_wishes, spec, dict(template), TEMPLATE_BASE):
            return sent
        changed = vm.model_copy(deep=True)
        changed.spec.instancetype = MatcherModel(name=size.metadata.name or "")
        changed.spec.preference = MatcherModel(name=wishes.metadata.name or "")
        changed.metadata.annotations |= _marks(size, wishes)
        return changed.plain()

    def _filled(self, sent: Json, namespace: str) -> Json:
        vmi = VirtualMachineInstanceModel.model_validate(sent)
        if any(owner["kind"] == "VirtualMachine" for owner in vmi.metadata.owner_references if owner.get("controller")):
            return sent
        after = vmi.plain()
        spec, annotations = after["spec"], after["metadata"]["annotations"]
        if size_field(spec["domain"]) or names.OFF in (vmi.metadata.labels.get(_OPT_OUT), annotations.get(_OPT_OUT)):
            return sent
        size, wishes = self._found(namespace)
        plain_size, plain_wishes = size.spec.plain(), wishes.spec.plain()
        defaults.disks(spec)
        preferences.autoattach(plain_wishes, spec)
        defaults.input_device(spec)
        defaults.network_interface(spec, DEFAULTS)
        annotations["kubevirt.io/cluster-instancetype-name"] = size.metadata.name
        annotations["kubevirt.io/cluster-preference-name"] = wishes.metadata.name
        if _refused(plain_size, plain_wishes, spec, annotations, VMI_BASE, keep=True):
            return sent
        annotations |= _marks(size, wishes)
        return after


def _refused(size: Json, wishes: Json, spec: Json, annotations: Json, base: str, *, keep: bool = False) -> bool:
    """Whether KubeVirt would deny a spec, to which both are applied."""
    try:
        preferences.check_divisible(size["cpu"]["guest"], wishes)
        apply_instancetype(size, wishes, spec, annotations, base)
        # What KubeVirt checks has its defaults; what is written must not.
        scratch = json.loads(json.dumps(spec)) if keep else spec
        defaults.spec_defaults(scratch, DEFAULTS)
        preferences.check_requirements(size, wishes, scratch)
    except (Cause, Conflicts):
        return True
    return False


def _marks(size: InstancetypeModel, wishes: Preference) -> dict[str, str]:
    return {
        names.INJECTED_INSTANCETYPE_ANNOTATION: f"{_INSTANCETYPE}/{size.metadata.name}",
        names.INJECTED_PREFERENCE_ANNOTATION: f"{_PREFERENCE}/{wishes.metadata.name}",
    }


def _answered(body: bytes, change: Callable[[Json, str], Json]) -> bytes:
    review = AdmissionReviewModel.model_validate_json(body)
    sent = review.request.object
    patch = jsonpatch.make_patch(sent, change(sent, review.request.namespace or "")).patch
    response: Json = {"uid": review.request.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return json.dumps({"apiVersion": review.api_version, "kind": review.kind, "response": response}).encode()
