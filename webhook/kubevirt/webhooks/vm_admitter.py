"""What KubeVirt's webhooks answer to a VM, as far as instancetypes go (KubeVirt, pkg/virt-api/webhooks).

Of the validation only the part about instancetypes is here: KubeVirt goes on to validate the whole expanded spec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.kubevirt.config import ARCHITECTURES, DEFAULTS, ClusterConfig
from webhook.kubevirt.defaults import vmi_spec
from webhook.kubevirt.go_json.origins import Note, Origin, ignore
from webhook.kubevirt.go_json.structs import Json, copy_written, decode, encode
from webhook.kubevirt.instancetype import apply as apply_instancetype
from webhook.kubevirt.instancetype import cpu_topology, infer
from webhook.kubevirt.instancetype.apply import TEMPLATE_BASE
from webhook.kubevirt.instancetype.conflict import CAUSES_SHOWN, Cause, Crash, Rejection, top_message
from webhook.kubevirt.instancetype.matcher import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.lookup import Get
from webhook.kubevirt.preference import apply as apply_preference
from webhook.kubevirt.preference import requirements
from webhook.kubevirt.releases.capabilities import (
    ARCHITECTURE_FROM_DATA_SOURCE,
    FILLS_MATCHER_KIND,
    WRITES_FIRMWARE_SERIAL,
)
from webhook.kubevirt.rules import Rules
from webhook.kubevirt.vm.manifest import read_vm
from webhook.kubevirt.webhooks import vmi_mutator

# The spec of what a decoded VM names; None where it is missing.
Find = Callable[[Matcher, Json], Json | None]

_ARCHITECTURE_LABEL: Final = "template.kubevirt.io/architecture"


@dataclass(frozen=True, slots=True)
class VmAdmission:
    """KubeVirt's answer.

    Attributes:
        code: HTTP's, 200 where allowed.
        message: why not; empty where allowed.
        causes: one by one, at most ten; none where the denial has no field.
        warnings: texts for the user, whatever the answer.
        vm: the VM as KubeVirt would change it (`mutate`) or has looked at it (`validate`); None if not allowed.
    """

    code: int = 200
    message: str = ""
    causes: Sequence[Cause] = ()
    warnings: Sequence[str] = ()
    vm: Json | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the webhook allows the VM."""
        return self.code == 200


def deny(causes: Sequence[Cause], warnings: Sequence[str] = ()) -> VmAdmission:
    """A denial with its causes, as KubeVirt answers it."""
    return VmAdmission(422, top_message(causes), tuple(causes[:CAUSES_SHOWN]), warnings)


def mutate(
    vm: Any,
    get: Get,
    new_uuid: Callable[[], str],
    configuration: ClusterConfig = DEFAULTS,
    old: Any = None,
) -> VmAdmission:
    """What KubeVirt's mutating webhook makes of a VM.

    Args:
        vm: plain JSON.
        get: looks up objects: preferences, revisions, and whatever inference needs.
        new_uuid: makes the UUID and the serial number of a new machine's firmware.
        configuration: the cluster's settings.
        old: the VM before an update, plain JSON; None for a creation.

    Returns:
        The answer; its VM shares nothing with the arguments.

    Raises:
        InputError: an object is malformed.
    """
    rules = configuration.rules
    changed = read_vm(vm, rules)
    answer = amend(changed, get, new_uuid, configuration, None if old is None else read_vm(old, rules))
    return replace(answer, vm=encode(rules.types.vm, changed)) if answer.is_allowed else answer


def amend(  # noqa: PLR0913 - the arguments of KubeVirt's own function
    vm: Json,
    get: Get,
    new_uuid: Callable[[], str],
    configuration: ClusterConfig,
    old: Json | None = None,
    note: Note = ignore,
    find: Find | None = None,
) -> VmAdmission:
    """What KubeVirt's mutating webhook makes of a decoded VM, which is changed.

    Args:
        vm: decoded; changed.
        get: looks up objects: preferences, revisions, and whatever inference needs.
        new_uuid: makes the UUID and the serial number of a new machine's firmware.
        configuration: the cluster's settings.
        old: the VM before an update, decoded; None for a creation.
        note: runs after each step, with the origin of what has changed.
        find: looks up what a matcher names, and remembers it; None: a new look-up for each.

    Returns:
        The answer, without the VM.

    Raises:
        InputError: an object is malformed.
    """
    rules = configuration.rules
    if "deletionTimestamp" in vm["metadata"]:
        return VmAdmission()
    for matcher in MATCHERS:
        if old is not None and (causes := matcher.stale_revision(vm, old)):
            return deny(causes)
    for matcher in MATCHERS:
        if causes := matcher.mistakes(vm, rules):
            return deny(causes)
    try:
        infer.infer(vm, get, rules)
    except Rejection as rejection:
        return VmAdmission(400, rejection.what)
    template = vm["spec"]["template"]
    _prefer(vm, (find or remember_specs(get, rules))(PREFERENCE_MATCHER, vm))
    note(Origin.PREFERENCE)
    if old is None:
        firmware = template["spec"]["domain"].setdefault("firmware", {})
        for name in ("uuid", "serial") if rules.has(WRITES_FIRMWARE_SERIAL) else ("uuid",):
            firmware[name] = firmware.get(name) or new_uuid()
    note(Origin.KUBEVIRT)
    _architecture(vm, get, configuration, note)
    vmi_spec.machine_type(template["spec"], configuration, note)
    if old is None and vmi_mutator.has_pci_topology(template["spec"], rules):
        vmi_mutator.annotate_pci_topology(template["metadata"])
    if rules.has(FILLS_MATCHER_KIND):
        _fill_kinds(vm)
    note(Origin.KUBEVIRT)
    return VmAdmission()


def _fill_kinds(vm: Json) -> None:
    """The cluster-wide kinds, as KubeVirt writes them into matchers without."""
    for matcher in MATCHERS:
        if matcher.field in vm["spec"]:
            vm["spec"][matcher.field].setdefault("kind", matcher.cluster.lower())


def remember_specs(get: Get, rules: Rules) -> Find:
    """Finds the specs of what a VM names, each once: nothing in a webhook changes matchers that are there.

    KubeVirt only logs what is missing, and goes on without it.

    Args:
        get: looks up instancetypes, preferences and revisions.
        rules: the rules of the cluster's release of KubeVirt.
    """
    specs: dict[Matcher, Json | None] = {}

    def find(matcher: Matcher, vm: Json) -> Json | None:
        if matcher not in specs:
            try:
                specs[matcher] = matcher.find_spec(vm, get, rules)
            except Rejection:
                specs[matcher] = None
        return specs[matcher]

    return find


def _prefer(vm: Json, preference: Json | None) -> None:
    if preference is not None:
        spec = vm["spec"]["template"]["spec"]
        apply_preference.architecture(preference, spec)
        apply_preference.machine_type(preference, spec["domain"])
        apply_preference.storage_class(preference, vm["spec"].get("dataVolumeTemplates", []))


def _architecture(vm: Json, get: Get, configuration: ClusterConfig, note: Note) -> None:
    spec = vm["spec"]["template"]["spec"]
    if spec.get("architecture"):
        return
    sources = [template["spec"].get("sourceRef", {}) for template in vm["spec"].get("dataVolumeTemplates", ())]
    labels = (
        _source_label(source, vm["metadata"].get("namespace", ""), get)
        for source in sources
        if source.get("kind", "").lower() == "datasource"
    )
    known = None
    if configuration.rules.has(ARCHITECTURE_FROM_DATA_SOURCE):
        known = next((label for label in labels if label in ARCHITECTURES), None)
    spec["architecture"] = known or configuration.default_architecture
    note(Origin.KUBEVIRT if known else Origin.CLUSTER)


def _source_label(reference: Json, namespace: str, get: Get) -> str | None:
    source = get("DataSource", reference.get("namespace") or namespace, reference["name"])
    if source is None:
        return None
    read = decode(infer.DATA_SOURCE, source, f"DataSource {reference['name']}")
    further = read["spec"]["source"].get("dataSource")
    if further is not None:
        source = get("DataSource", further.get("namespace", ""), further.get("name", ""))
        if source is None:
            return None
        read = decode(infer.DATA_SOURCE, source, f"DataSource {further.get('name', '')}")
    label: str | None = read["metadata"].get("labels", {}).get(_ARCHITECTURE_LABEL)
    return label


def validate(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> VmAdmission:
    """What KubeVirt's validating webhook says of a VM's instancetype and preference.

    Args:
        vm: plain JSON.
        get: looks up instancetypes, preferences and revisions.
        configuration: the cluster's settings.

    Returns:
        The answer; its VM is the expanded copy that KubeVirt goes on to validate.

    Raises:
        Crash: KubeVirt would crash.
        InputError: an object is malformed.
    """
    rules = configuration.rules
    scratch = read_vm(vm, rules)
    answer = evaluate(scratch, get, configuration)
    return replace(answer, vm=encode(rules.types.vm, scratch)) if answer.is_allowed else answer


def evaluate(vm: Json, get: Get, configuration: ClusterConfig, find: Find | None = None) -> VmAdmission:
    """What KubeVirt's validating webhook answers to a decoded VM, which is changed.

    Args:
        vm: decoded; on success it is the expanded copy that KubeVirt goes on to validate.
        get: looks up instancetypes, preferences and revisions.
        configuration: the cluster's settings.
        find: looks up what a matcher names, and remembers it; None: a new look-up for each.

    Returns:
        The answer, without the VM.

    Raises:
        Crash: KubeVirt would crash.
        InputError: an instancetype, preference or revision is malformed.
    """
    rules = configuration.rules
    find = find or remember_specs(get, rules)
    specs = [find(matcher, vm) for matcher in (INSTANCETYPE_MATCHER, PREFERENCE_MATCHER)]
    template = vm["spec"]["template"]
    annotations = template["metadata"].setdefault("annotations", {})
    if specs[0] is not None:
        cause = cpu_topology.check_divisible(specs[0]["cpu"]["guest"], specs[1])
        if cause is not None:
            return deny([cause])
    conflicts = apply_instancetype.apply(specs[0], specs[1], template["spec"], annotations, TEMPLATE_BASE, rules=rules)
    if conflicts:
        return deny(conflicts)
    try:
        vmi_spec.spec_defaults(template["spec"], configuration)
    except Rejection as rejection:
        return VmAdmission(400, rejection.what)
    cause = requirements.check(specs[0], specs[1], template["spec"])
    return VmAdmission() if cause is None else deny([cause])


def objection(vm: Json, get: Get, configuration: ClusterConfig, find: Find) -> Rejection | None:
    """What KubeVirt's two webhooks, one after the other, have against the creation of a VM.

    Args:
        vm: the VM as `share_vm` returns it; it stays as it is.
        get: looks up objects: preferences, revisions, and whatever inference needs.
        configuration: the cluster's.
        find: looks up what a matcher names, and remembers it.

    Returns:
        The denial, a `Crash` where KubeVirt would crash; None for none.

    Raises:
        InputError: an object is malformed.
    """
    changed = _copy(vm)
    try:
        answer = amend(changed, get, _new_uuid, configuration, find=find)
        if answer.is_allowed:
            # The second webhook reads what the first has written. Neither it nor the owner leaves anything empty in
            # this VM, which would be gone by then; so there is no need to write and read it.
            answer = evaluate(changed, get, configuration, find)
    except Crash as crash:
        return crash
    return None if answer.is_allowed else Rejection(answer.message)


def _new_uuid() -> str:
    """A stand-in: neither webhook looks at it."""
    return "new"


def _copy(vm: Json) -> Json:
    """A VM that shares with the given one what neither webhook changes."""
    spec = vm["spec"]
    template = spec["template"]
    metadata, inner = template["metadata"], template["spec"]
    own: Json = {matcher.field: dict(spec[matcher.field]) for matcher in MATCHERS if matcher.field in spec}
    if "dataVolumeTemplates" in spec:
        own["dataVolumeTemplates"] = copy_written(spec["dataVolumeTemplates"])
    own["template"] = {
        **template,
        "metadata": {**metadata, "annotations": dict(metadata.get("annotations", {}))},
        "spec": {**inner, "domain": copy_written(inner["domain"])},
    }
    return {**vm, "spec": {**spec, **own}}
