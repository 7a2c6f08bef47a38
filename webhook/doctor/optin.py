"""The namespaces that have opted in, and labels and annotations that have no effect."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from webhook import names
from webhook.cluster.reader import RESOURCES
from webhook.doctor.installation import Installation
from webhook.errors import InputError, quote
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, Matcher, parse
from webhook.policies.instancetypes.namespace_defaults import is_allowed
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.registry import BY_NAME
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.text import abbreviate, choices_of, pluralize

_PREFIX: Final = f"{names.DOMAIN}/"
# How much a prefix has in common with that of kubevirt-webhook, of 1, to be a mistyped one.
_SIMILAR: Final = 0.8
_MODES: Final = get_args(names.Mode)
_LABELS: Final = tuple(names.policy_label(policy) for policy in sorted(BY_NAME, reverse=True))
# Each with its values, if there is a list of them.
_ANNOTATIONS: Final = {key: values for policy in BY_NAME.values() for key, values in policy.annotations.items()}


@check("opt-in")
async def check_opt_in(installation: Installation) -> list[Finding]:
    """Count modes, and read every label and annotation with the prefix of kubevirt-webhook."""
    namespaces = readable("namespaces", await installation.reader.all(NAMESPACES))
    findings = [_coverage(installation, namespaces)]
    findings += _check_allowed("settings", installation.settings.of(InstancetypeSettings))
    for namespace in namespaces:
        subject, name = f"Namespace {namespace.meta.name}", namespace.meta.name or ""
        for key in (*(namespace.meta.labels or {}), *(namespace.meta.annotations or {})):
            if meant := _meant_by(key):
                what = f"{quote(key)} has no effect, because its prefix is not {names.DOMAIN}"
                findings.append(warning("prefix-wrong", subject, what, f"use {meant}"))
        own = {names.DEFAULT_INSTANCETYPE_ANNOTATION, names.ALLOWED_INSTANCETYPES_ANNOTATION}
        if own & set(namespace.meta.annotations or {}):
            effective = installation.settings.of(InstancetypeSettings).with_annotations(
                namespace.meta.annotations or {}
            )
            findings += _check_allowed(subject, effective)
        for key, value in (namespace.meta.labels or {}).items():
            if key.startswith(_PREFIX) and (problem := _label_problem(installation, name, key, value)):
                findings.append(warning(problem[0], subject, *problem[1:]))
        for key, value in (namespace.meta.annotations or {}).items():
            if key.startswith(_PREFIX) and (problem := _annotation_problem(installation, key, value)):
                findings.append(warning(problem[0], subject, *problem[1:]))
        findings += _check_readable(installation, subject, namespace.meta.annotations or {})
        for annotation, matcher in (
            (names.DEFAULT_INSTANCETYPE_ANNOTATION, INSTANCETYPE_MATCHER),
            (names.DEFAULT_PREFERENCE_ANNOTATION, PREFERENCE_MATCHER),
        ):
            text = (namespace.meta.annotation(annotation) or "").strip()
            findings += await _check_default(installation, subject, f"annotation {annotation}", matcher, text, name)
    settings = installation.settings.of(InstancetypeSettings)
    for place, matcher, text in (
        ("instancetypes.defaultInstancetype", INSTANCETYPE_MATCHER, settings.default_instancetype),
        ("instancetypes.defaultPreference", PREFERENCE_MATCHER, settings.default_preference),
    ):
        findings += await _check_default(installation, "settings", place, matcher, text, "")
    return findings


def _coverage(installation: Installation, namespaces: Sequence[Namespace]) -> Finding:
    """How many namespaces have each mode of each policy."""
    texts, is_any = [], False
    for policy in sorted(BY_NAME, reverse=True):
        modes = Counter(installation.mode(namespace, policy) for namespace in namespaces)
        counts = [f"{modes[mode]} {mode}" for mode in _MODES if modes[mode]]
        is_any = is_any or any(modes[mode] for mode in _MODES if mode != names.OFF)
        wide = " (cluster-wide)" if installation.settings.policy(policy).cluster_wide else ""
        # A policy that nobody has chosen goes without saying: each one more would change what is said of the others.
        if counts or wide:
            texts.append(f"{policy}{wide}: {', '.join(counts) or 'none'}")
    what = "; ".join([pluralize(len(namespaces), "namespace"), *texts])
    if is_any:
        return ok("opted-in", "coverage", what)
    scheduling = installation.settings.of(SchedulingSettings)
    # Without either, scheduling does nothing: another policy is meant.
    acts = scheduling.schedulers or scheduling.spread != names.OFF
    label = names.policy_label(names.SCHEDULING) if acts else f"{names.DOMAIN}/POLICY"
    todo = f"opt one in: kubectl label namespace NAME {label}={names.WARN}"
    return warning("none-opted-in", "coverage", f"0 of {what}", todo)


def _check_readable(installation: Installation, subject: str, annotations: Mapping[str, str]) -> list[Finding]:
    """What policies cannot read of a namespace's annotations, as their sections say it."""
    sections = [
        installation.settings.policy(policy.name).with_annotations(annotations)
        for policy in BY_NAME.values()
        if not annotations.keys().isdisjoint(policy.annotations)
    ]
    mistakes = [mistake for section in sections for mistake in section.annotation_mistakes.values()]
    return [
        warning("annotation-invalid", subject, f"only the settings count, because of {mistake}", "correct it")
        for mistake in mistakes
    ]


def _check_allowed(subject: str, instancetypes: InstancetypeSettings) -> list[Finding]:
    """Whether VMs that get the default instancetype are allowed to have it."""
    text = instancetypes.default_instancetype
    try:
        reference = parse(INSTANCETYPE_MATCHER, text, "") if text else None
        if reference is None or is_allowed(INSTANCETYPE_MATCHER, reference, instancetypes):
            return []
    except InputError:
        return []  # what `_check_default` tells
    what = f"the default instancetype {reference} is not on the list of allowed ones, so no VM gets it"
    todo = "add it to the list, or name a default that is on it"
    return [warning("default-not-allowed", subject, what, todo)]


def _meant_by(key: str) -> str:
    """The label or annotation that was probably meant by one with a similar prefix; empty: none was."""
    first, _, domain = key.partition(".")
    if domain == names.DOMAIN and "/" not in key:
        # The two turned around, as in a host's name.
        key = f"{domain}/{first}"
        return key if key in (*_LABELS, *_ANNOTATIONS) else ""
    prefix, slash, name = key.rpartition("/")
    meant = f"{_PREFIX}{name}"
    if not slash or prefix == names.DOMAIN or meant not in (*_LABELS, *_ANNOTATIONS):
        return ""
    is_similar = difflib.SequenceMatcher(None, prefix, names.DOMAIN).ratio() > _SIMILAR
    return meant if is_similar or prefix.startswith(names.DOMAIN.partition(".")[0]) else ""


def _label_problem(installation: Installation, namespace: str, key: str, value: str) -> tuple[str, str, str] | None:
    """The code, a clause about a label without effect, and what to do."""
    if key in _ANNOTATIONS:
        return "label-is-annotation", f"label {key} has no effect", "set it as an annotation"
    if key not in _LABELS:
        return "label-unknown", f"label {quote(key)} is unknown", _closest_match(key, _LABELS)
    if value not in _MODES:
        near = difflib.get_close_matches(value.lower(), _MODES, n=1)
        todo = f"did you mean {near[0]}?" if near else f"use {choices_of(_MODES)}"
        return "mode-invalid", f"label {key} has the invalid value {quote(value)}, so the policy is off", todo
    if namespace in installation.settings.every_excluded_namespace and value != names.OFF:
        why = "the settings exclude this namespace"
        return "namespace-excluded", f"label {key}={value} has no effect: {why}", "remove the label"
    return None


def _annotation_problem(installation: Installation, key: str, value: str) -> tuple[str, str, str] | None:
    """The code, a clause about an annotation without effect, and what to do."""
    if key in _LABELS:
        return "annotation-is-label", f"annotation {key} has no effect", "set it as a label"
    if key not in _ANNOTATIONS:
        return "annotation-unknown", f"annotation {quote(key)} is unknown", _closest_match(key, tuple(_ANNOTATIONS))
    declared = sorted(installation.settings.of(SchedulingSettings).schedulers)
    if key == names.SCHEDULER_NAME_ANNOTATION and value not in declared:
        what = f"annotation {key} names the scheduler {quote(value)}, which the settings do not declare"
        todo = "declare it under schedulers in the settings"
        return "scheduler-undeclared", what, f"{todo}, or use {abbreviate(declared)}" if declared else todo
    choices = _ANNOTATIONS[key]
    if not choices or value in choices or (key != names.EXPAND_INSTANCETYPES_ANNOTATION and value.strip() in choices):
        return None
    what = f"annotation {key} has the invalid value {quote(value)}"
    return "annotation-invalid", what, f"use {choices_of(choices)}"


def _closest_match(key: str, valid: tuple[str, ...]) -> str:
    short = [name.removeprefix(_PREFIX) for name in valid]
    near = difflib.get_close_matches(key.removeprefix(_PREFIX), short, n=1)
    return f"did you mean {_PREFIX}{near[0]}?" if near else f"valid names after {_PREFIX} are {', '.join(short)}"


@check("opt-in")
async def _check_default(
    installation: Installation, subject: str, place: str, matcher: Matcher, text: str, namespace: str
) -> list[Finding]:
    """Check that the object which a default names exists.

    The place is an annotation or a setting, and the text its value. Without a namespace, an object of a namespaced kind
    is another one in every namespace, and not checked.
    """
    if not text:
        return []
    try:
        reference = parse(matcher, text, place)
    except InputError as error:
        return [warning("default-invalid", subject, f"{place}: {error.what}", error.fix)]
    resource = RESOURCES[reference.kind]
    if resource.namespaced and not namespace:
        return []
    if readable(subject, await installation.reader.get(resource, namespace, reference.name)) is None:
        what = f"{place} names {reference}, which does not exist"
        return [warning("default-missing", subject, what, "create it, or name another")]
    return []
