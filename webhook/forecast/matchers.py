"""The matchers of a VM as KubeVirt's mutating webhook leaves them to the webhooks that validate it.

By then nothing is left to infer. kubevirt-webhook's server has no permission to read volumes, and needs none; who
reviews a manifest has to look for what KubeVirt would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.forecast.vm import BlockingLookups
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.find import MATCHERS, Matcher
from webhook.kubevirt.instancetype.infer import infer
from webhook.kubevirt.rejection import Get, NotFound, Rejection
from webhook.kubevirt.rules import Rules, read_vm
from webhook.kubevirt.webhooks import deny


class Inferred(NamedTuple):
    """What becomes of a VM's matchers.

    Attributes:
        vm: the VM, plain JSON, with what was inferred; what was given where nothing was.
        denial: why KubeVirt denies the VM, in its words; empty: it does not.
        field: the one that the denial is about; empty for both.
        unknown: what nothing is known of, a clause; empty: nothing was left to look for.
    """

    vm: Any
    denial: str = ""
    field: str = ""
    unknown: str = ""


async def infer_matchers(vm: Json, old: Any, cluster: Cluster, namespace: str, rules: Rules) -> Inferred:
    """What KubeVirt's mutating webhook makes of the matchers of a VM, plain JSON, which is not changed.

    Args:
        vm: as it is sent.
        old: the VM before an update; None for a creation.
        cluster: where volumes and their sources are looked for.
        namespace: that of the request.
        rules: of KubeVirt's release.
    """
    if not any(_is_looked_at(vm, matcher) for matcher in MATCHERS):
        return Inferred(vm)
    try:
        _read(vm, namespace, rules)
    except InputError:
        # The webhooks after this say what cannot be read in it.
        return Inferred(vm)
    try:
        before = old if isinstance(old, dict) else None
        return await BlockingLookups({}, cluster).run(lambda get: _infer(vm, before, namespace, get, rules))
    except InputError as error:
        return Inferred(vm, unknown=f"{error.where}: {error.what}" if error.where else error.what)


def _is_looked_at(vm: Json, matcher: Matcher) -> bool:
    spec, metadata = vm.get("spec"), vm.get("metadata")
    value: Any = spec.get(matcher.field) if isinstance(spec, dict) and isinstance(metadata, dict) else None
    return isinstance(value, dict) and bool(value.get("inferFromVolume") or value.get("revisionName"))


def _infer(vm: Json, old: Json | None, namespace: str, get: Get, rules: Rules) -> Inferred:
    decoded = _read(vm, namespace, rules)
    if "deletionTimestamp" in decoded["metadata"]:
        return Inferred(vm)
    before = _read(old, namespace, rules) if old else None
    causes = [cause for matcher in MATCHERS if before for cause in matcher.stale_revision(decoded, before)]
    causes = causes or [cause for matcher in MATCHERS for cause in matcher.mistakes(decoded, rules)]
    if causes:
        return Inferred(vm, deny(causes).message, causes[0].field)
    volumes = [decoded["spec"].get(matcher.field, {}).get("inferFromVolume", "") for matcher in MATCHERS]
    try:
        infer(decoded, get, rules)
    except NotFound as missing:
        named = " and ".join(dict.fromkeys(filter(None, volumes)))
        return Inferred(vm, unknown=f"what is inferred from volume {named}: {missing.what}")
    except Rejection as rejection:
        infers = [matcher.field for matcher, volume in zip(MATCHERS, volumes, strict=True) if volume]
        return Inferred(vm, rejection.what, f"spec.{infers[0]}")
    return Inferred(_with_matchers(vm, decoded["spec"])) if any(volumes) else Inferred(vm)


def _read(vm: Json, namespace: str, rules: Rules) -> Json:
    metadata = vm.get("metadata")
    return read_vm(
        {**vm, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "namespace": namespace}}, rules
    )


def _with_matchers(vm: Json, spec: Mapping[str, Any]) -> Json:
    """A VM with the matchers of a decoded spec, and without the memory that inference has removed there."""
    own = {field: value for field, value in vm["spec"].items() if field not in {matcher.field for matcher in MATCHERS}}
    own |= {matcher.field: spec[matcher.field] for matcher in MATCHERS if matcher.field in spec}
    template = own["template"]
    # Who infers may leave the domain out: Go sees an empty one.
    domain = template["spec"].get("domain") or {}
    if "memory" in domain and "memory" not in spec["template"]["spec"]["domain"]:
        domain = {field: value for field, value in domain.items() if field != "memory"}
        own["template"] = {**template, "spec": {**template["spec"], "domain": domain}}
    return {**vm, "spec": own}
