"""VMs: the defaults of new ones, as matchers or expanded, and the validation of what VMs name.

Each injected default has an annotation with its ``KIND/NAME``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from webhook import names
from webhook.admission.decision import Decision, Denial, FieldCause, Reason, RepeatedChanges, allow, deny
from webhook.admission.patch import changes
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import InputError
from webhook.facts import Facts, Unreadable
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt import webhooks
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.instancetype import find, preferences
from webhook.kubevirt.instancetype.apply import expand
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.rejection import Cause, Crash, NotFound, Rejection
from webhook.kubevirt.rules import Rules, read_vm, share_vm
from webhook.kubevirt.types.core import MATCHER
from webhook.kubevirt.types.views import UnstructuredVm
from webhook.kubevirt.vm.size import size_field
from webhook.policies.common.ownership import Manifests
from webhook.policies.instancetypes import namespace_defaults, reasons
from webhook.policies.instancetypes.lookups import Lookups, UnsupportedReleaseError, named_references
from webhook.policies.instancetypes.namespace_defaults import Default, Findings
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.instancetypes.updates import evaluate_update


async def apply_defaults(
    vm: UnstructuredVm, request: Request[UnstructuredVm], facts: Facts, settings: InstancetypeSettings
) -> Decision:
    """Give a new VM the namespace's defaults; at UPDATE put back what an overwrite took.

    A VM on which KubeVirt's webhook would crash is denied here, before it gets there: the user would read "EOF".
    """
    if passed_over := _pass_over(vm, request, settings):
        return passed_over
    # What is written out stays, whatever the objects say later.
    findings = Findings(Lookups(facts.uncached() if settings.expand else facts, request.namespace or ""), settings)
    try:
        if request.operation == "UPDATE":
            return await evaluate_update(vm, request.old_object, findings)
        return await _evaluate_create(vm, findings)
    except (UnsupportedReleaseError, Unreadable, InputError) as error:
        return namespace_defaults.allow_unevaluated(error, "no default instancetype or preference was applied")


def _pass_over(vm: UnstructuredVm, request: Request[UnstructuredVm], settings: InstancetypeSettings) -> Decision | None:
    """Why neither defaults nor validation apply to a request; None where they do."""
    if not settings.virtual_machines:
        return allow(common.disabled("instancetypes.virtualMachines"))
    if request.operation not in ("CREATE", "UPDATE"):
        return allow(common.other_operation(request.operation))
    if vm.meta.deletion_timestamp:
        return allow(common.being_deleted("the VM"))
    return None


async def _evaluate_create(vm: Unstructured, findings: Findings) -> Decision:
    lookups, settings = findings.lookups, findings.settings
    rules = (await lookups.configuration()).rules
    # The status of an object to be created is what its sender claims; the API server drops it.
    candidate = namespace_defaults.plain_object(vm, lookups.namespace, {})
    shared = share_vm(candidate, rules)
    spec = shared["spec"]
    references: dict[Matcher, find.SpecReference] = {}
    if namespace_defaults.has_opted_out(vm):
        findings.note(common.opted_out(names.INSTANCETYPES))
    else:
        for matcher in MATCHERS:
            if named := _default_for(matcher, vm, spec, findings):
                references[matcher] = named
    # A preset's size counts like the VM's own.
    beside_none = [matcher for matcher in references if not namespace_defaults.goes_beside_a_size(matcher, settings)]
    # Without a preference KubeVirt cannot crash, and what the VM names is not looked up.
    needs_named = settings.expand or PREFERENCE_MATCHER.field in spec
    expected = [*references.values(), *(named_references(shared) if needs_named else ())]
    needs_presets = beside_none or not namespace_defaults.names_memory(vm.spec)
    await lookups.prefetch(expected, presets=bool(needs_presets))
    metadata = namespace_defaults.template_metadata(vm)
    why_not = await namespace_defaults.preset_size(metadata, lookups, findings.warnings) if beside_none else None
    for matcher in beside_none if why_not else ():
        findings.note(reasons.sized(matcher.field, why_not or ""))
        del references[matcher]
    defaults = list(_existing_defaults(references, findings))
    fit = await namespace_defaults.fit_defaults(shared, defaults, lookups)
    if fit.crash:
        return namespace_defaults.deny_crash(fit.crash)
    chosen = fit.chosen
    is_unfit = len(fit.chosen) < len(defaults)
    findings.note_unfit(defaults, fit, lacks_instancetype=is_unfit and _lacks_instancetype(shared, lookups, rules))
    gets_instancetype = any(default.matcher is INSTANCETYPE_MATCHER for default in chosen)
    if not gets_instancetype and await namespace_defaults.lacks_memory(vm.spec, lookups):
        findings.warn_first(reasons.memory_missing)
    if (
        settings.expand
        and not namespace_defaults.has_opted_out(vm)
        and (expanded := await _expand(vm, candidate, chosen, findings))
    ):
        return expanded
    if chosen:
        injected_values = [(default.matcher.field, default.injected_value) for default in chosen]
        findings.reasons.insert(0, reasons.defaults_injected(injected_values))
    elif not findings.reasons:
        findings.note(reasons.no_defaults)
    made = _injections(tuple([(default.matcher, default.injected_value) for default in chosen]))
    return findings.decision(changes=made, notes={default.matcher.field: default.injected_value for default in chosen})


def _lacks_instancetype(vm: Json, lookups: Lookups, rules: Rules) -> bool:
    """Whether a VM, as `share_vm` returns it, names an instancetype that does not exist; it has been read."""
    if not vm["spec"].get(INSTANCETYPE_MATCHER.field, {}).get("name"):
        return False
    try:
        INSTANCETYPE_MATCHER.find(vm, lookups.get, rules)
    except Rejection:
        return True
    return False


def _existing_defaults(references: Mapping[Matcher, find.SpecReference], findings: Findings) -> Iterator[Default]:
    for matcher, named in references.items():
        if findings.lookups.get(named.kind, findings.lookups.namespace, named.name) is not None:
            yield Default.of(matcher, named)
        else:
            findings.note(reasons.default_missing(matcher.field, str(named)), warn=True)


# A namespace's VMs get the same defaults one after the other.
@lru_cache(maxsize=64)
def _injections(injected_values: tuple[tuple[Matcher, str], ...]) -> RepeatedChanges:
    """What writes defaults into a VM that has none of these."""
    defaults = [Default.of(matcher, find.SpecReference(*text.split("/", 1))) for matcher, text in injected_values]
    return RepeatedChanges(change for default in defaults for change in default.changes(reasons.DEFAULTS_INJECTED))


def _default_for(matcher: Matcher, vm: Unstructured, spec: Json, findings: Findings) -> find.SpecReference | None:
    """The default that a VM should get, if there is one that may be used; a finding says why not."""
    settings = findings.settings
    text = namespace_defaults.default(matcher, settings)
    if not text:
        return None
    beside = namespace_defaults.goes_beside_a_size(matcher, settings)
    if matcher.field in spec:
        is_copied = namespace_defaults.default_of(matcher, vm, Manifests(vm)) is not None
        findings.note(reasons.had_default(matcher.field) if is_copied else reasons.owner_chose(matcher.field))
    elif vm.meta.annotation(namespace_defaults.INJECTED_ANNOTATIONS[matcher.field]):
        findings.note(reasons.owner_removed(matcher.field))
    elif (size := size_field(spec["template"].get("spec", {}).get("domain"))) and not beside:
        findings.note(reasons.sized(matcher.field, reasons.vm_size(size)))
    else:
        try:
            reference = find.parse(matcher, text, namespace_defaults.DEFAULT_ANNOTATIONS[matcher.field])
        except InputError as error:
            why_not = str(error)
        else:
            if namespace_defaults.is_allowed(matcher, reference, settings):
                return reference
            why_not = namespace_defaults.not_allowed(reference, findings.lookups.namespace, settings)
        findings.note(reasons.default_unusable(matcher.field, why_not), warn=True)
    return None


async def _expand(
    vm: Unstructured, candidate: Json, defaults: Sequence[Default], findings: Findings
) -> Decision | None:
    """A VM with what its matchers name written out, the candidate being its JSON without defaults; None: it stays.

    A VM that validation will deny stays as it is: once written out, the mistake could not be found. The annotations of
    defaults are kept: by them the defaults are put back where an overwrite removes all of it.
    """
    lookups, candidate = findings.lookups, namespace_defaults.with_defaults(candidate, defaults)
    vm_matchers = [candidate["spec"].get(matcher.field) for matcher in MATCHERS]
    if not any(vm_matchers):
        return None
    if any(vm_matcher.get("inferFromVolume") for vm_matcher in vm_matchers if vm_matcher):
        findings.note(reasons.not_expanded_inferred, warn=True)
        return None
    configuration = await lookups.configuration()
    rules = configuration.rules
    decoded = read_vm(candidate, rules)
    rejection = await namespace_defaults.find_rejection(share_vm(candidate, rules), (), lookups)
    why_not = (
        rejection.what if rejection else await namespace_defaults.reason_forbidden(decoded, lookups, findings.settings)
    )
    if why_not:
        findings.note(reasons.not_expanded(why_not))
        return None
    if lookups.passed_over:
        findings.note(reasons.not_expanded_architecture, warn=True)
        return None
    shape = rules.vm
    # KubeVirt does this when it admits a VM, and so before it ever expands one.
    preferences.storage_class(
        namespace_defaults.preference_of(decoded, lookups, rules), decoded["spec"].get("dataVolumeTemplates", [])
    )
    try:
        after = expand(encode(shape, decoded), lookups.get, configuration)
    except Rejection as rejection:
        findings.note(reasons.not_expanded(rejection.what), warn=True)
        return None
    before = encode(shape, candidate)
    named = zip(MATCHERS, vm_matchers, strict=True)
    made = {matcher.field: _source(matcher, vm_matcher) for matcher, vm_matcher in named if vm_matcher}
    findings.reasons.insert(0, reasons.expanded(made))
    written = changes(("spec",), vm.spec, before["spec"], after["spec"], reasons.EXPANDED)
    annotation_changes = [default.annotation_change(reasons.EXPANDED) for default in defaults]
    return findings.decision(
        changes=[*written, *annotation_changes], notes={field: str(source) for field, source in made.items()}
    )


def _source(matcher: Matcher, vm_matcher: Json) -> find.SpecReference:
    """Where KubeVirt takes from what a VM's matcher says: beside a revision, kind and name do not count."""
    if vm_matcher.get("revisionName"):
        return find.SpecReference("ControllerRevision", vm_matcher["revisionName"])
    return find.of_matcher(matcher, vm_matcher)


async def validate_vm(
    vm: UnstructuredVm, request: Request[UnstructuredVm], facts: Facts, settings: InstancetypeSettings
) -> Decision:
    """Deny a VM whose instancetype and preference cannot work, do not exist, or are not allowed.

    At UPDATE only where a matcher or the template has changed: what was admitted once must stay editable.
    """
    if passed_over := _pass_over(vm, request, settings):
        return passed_over
    spec = vm.spec or {}
    if all(spec.get(matcher.field) is None for matcher in MATCHERS):
        return allow(reasons.no_matcher)
    old = (request.old_object.spec if request.old_object else None) or {}
    changed = [matcher for matcher in MATCHERS if spec.get(matcher.field) != old.get(matcher.field)]
    if request.operation == "UPDATE" and not changed and spec.get("template") == old.get("template"):
        return allow(reasons.unchanged)
    lookups = Lookups(facts, request.namespace or "")
    try:
        return await _evaluate(vm, request.operation, changed, lookups, settings)
    except Crash as crash:
        return namespace_defaults.deny_crash(crash)
    except (UnsupportedReleaseError, Unreadable, InputError) as error:
        if isinstance(error, Unreadable) and settings.failure_policy == "Fail":
            return deny(reasons.lookup_failed(error.why), 503)
        return namespace_defaults.allow_unevaluated(error, "the VM's instancetype was not validated")


async def _evaluate(
    vm: Unstructured, operation: str, changed: list[Matcher], lookups: Lookups, settings: InstancetypeSettings
) -> Decision:
    plain = vm.plain()
    # What has just been created has no revisions, whatever status its sender claims.
    status = vm.status if operation == "UPDATE" else None
    candidate = {**plain, "metadata": {**plain["metadata"], "namespace": lookups.namespace}, "status": status or {}}
    vm_matcher = (vm.spec or {}).get(INSTANCETYPE_MATCHER.field)
    if vm_matcher is not None and INSTANCETYPE_MATCHER in changed:
        # Before the rest is read: a VM that is too large to be evaluated doesn't get past the list.
        try:
            decoded_matcher = decode(MATCHER, vm_matcher, "spec.instancetype")
        except InputError as error:
            # Nor does one that can't be read.
            return deny(Reason(common.INVALID_OBJECT, str(error)), 422, "spec.instancetype")
        text = await namespace_defaults.reason_forbidden(
            {"spec": {INSTANCETYPE_MATCHER.field: decoded_matcher}}, lookups, settings
        )
        if text:
            cause = Cause("FieldValueNotSupported", text, "spec.instancetype.name")
            hint: tuple[Reason, ...] = ()
            if namespace_defaults.default_of(INSTANCETYPE_MATCHER, vm, Manifests(vm)):
                annotation = namespace_defaults.INJECTED_ANNOTATIONS[INSTANCETYPE_MATCHER.field]
                way_out = reasons.way_out_of_copied(INSTANCETYPE_MATCHER.field, annotation)
                hint = (Reason(reasons.NOT_ALLOWED, way_out),)
            return _deny_by_causes(reasons.NOT_ALLOWED, 403, [cause], warnings=hint)
    configuration = await lookups.configuration()
    decoded = read_vm(candidate, configuration.rules)
    await lookups.prefetch_named(decoded)
    missing = [cause for matcher in changed for cause in _missing(matcher, decoded, lookups, configuration.rules)]
    if missing and settings.missing == "deny":
        return _deny_by_causes(reasons.MISSING, 422, missing)
    answer = webhooks.evaluate_vm(decoded, lookups.get, configuration)
    if not answer.is_allowed:
        ways_out = _ways_out(vm, operation, candidate, lookups, configuration)
        return _deny_by_causes(reasons.DENIED, answer.code, answer.causes, answer.message, ways_out)
    if missing:
        doubts = tuple(reasons.missing(each.field, each.what, each.reason == "FieldValueNotFound") for each in missing)
        return Decision(doubts, warnings=doubts)
    # KubeVirt has inferred both by the time that it asks: only who reviews a manifest has something left to infer.
    infers = any("inferFromVolume" in decoded["spec"].get(matcher.field, {}) for matcher in MATCHERS)
    return Decision((reasons.not_validated_inferred if infers else reasons.valid,))


def _missing(matcher: Matcher, vm: Json, lookups: Lookups, rules: Rules) -> Iterator[Cause]:
    vm_matcher, captured = vm["spec"].get(matcher.field), vm["status"].get(matcher.reference, {})
    if vm_matcher is None or vm_matcher.get("inferFromVolume"):
        return
    if not vm_matcher.keys() & {"name", "revisionName"}:
        # Only inference leaves such a matcher. KubeVirt never looks at the VM again, and denies every change of it.
        label = f"instancetype.kubevirt.io/default-{matcher.field}"
        yield Cause("FieldValueInvalid", reasons.names_nothing(matcher.field, label), f"spec.{matcher.field}")
        return
    try:
        matcher.find(vm, lookups.get, rules)
        # KubeVirt's webhook finds the revision of that name; virt-controller sees another kind, and captures it again.
        if "revisionName" not in vm_matcher and vm_matcher.get("kind", captured.get("kind")) != captured.get("kind"):
            matcher.live(vm, lookups.get, rules)
    except Rejection as rejection:
        reason = "FieldValueNotFound" if isinstance(rejection, NotFound) else "FieldValueInvalid"
        yield Cause(reason, rejection.what, f"spec.{matcher.field}")


def _ways_out(
    vm: Unstructured, operation: str, candidate: Json, lookups: Lookups, configuration: ClusterConfig
) -> tuple[Reason, ...]:
    """What may be new to the user of a denied request: an injected instancetype or preference is in the way."""
    manifests = Manifests(vm)
    injected_values = {
        matcher: injected_value
        for matcher in MATCHERS
        if (injected_value := namespace_defaults.default_of(matcher, vm, manifests))
    }
    if operation == "CREATE":
        ours = injected_values.get(INSTANCETYPE_MATCHER)
        return (Reason(reasons.DENIED, reasons.way_out_at_create(ours)),) if ours else ()
    for without in ((INSTANCETYPE_MATCHER,), (PREFERENCE_MATCHER,), MATCHERS):
        if all(matcher in injected_values for matcher in without) and _fits(without, candidate, lookups, configuration):
            defaults = {matcher.field: injected_values[matcher] for matcher in without}
            return (Reason(reasons.DENIED, reasons.way_out_at_update(defaults)),)
    return ()


def _fits(without: Sequence[Matcher], candidate: Json, lookups: Lookups, configuration: ClusterConfig) -> bool:
    """Whether KubeVirt would take a VM without some of its matchers."""
    left_out = [matcher.field for matcher in without]
    spec = {field: value for field, value in candidate["spec"].items() if field not in left_out}
    try:
        vm = read_vm({**candidate, "spec": spec}, configuration.rules)
        return webhooks.evaluate_vm(vm, lookups.get, configuration).is_allowed
    except Crash:
        return False


def _deny_by_causes(
    code: str, status: int, causes: Sequence[Cause], message: str = "", warnings: tuple[Reason, ...] = ()
) -> Decision:
    """The denial of a VM for what is wrong with its fields, in the words of the message, else of the causes."""
    text = message or ", ".join(cause.what for cause in causes)
    denial = Denial(status, text, tuple(FieldCause(cause.reason, cause.what, cause.field) for cause in causes))
    return Decision((Reason(code, text),), denial=denial, warnings=warnings)
