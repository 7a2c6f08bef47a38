"""Which namespaces have opted in, and do their labels and annotations say what somebody meant?"""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Final, get_args

from webhook import names
from webhook.cluster.objects import RESOURCES
from webhook.doctor.support.finding import Finding, pluralize, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import InputError, Unavailable, quote
from webhook.k8s.views import Namespace
from webhook.kubevirt.instancetype.matcher import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.instancetype.reference import parse

CHECK: Final = "opt-in"

_PREFIX: Final = f"{names.DOMAIN}/"
_MODES: Final = get_args(names.Mode)
_LABELS: Final = tuple(names.policy_label(policy) for policy in get_args(names.Policy))
_ANNOTATIONS: Final = (
    names.SCHEDULER_NAME_ANNOTATION,
    names.SPREAD_ANNOTATION,
    names.DEFAULT_INSTANCETYPE_ANNOTATION,
    names.DEFAULT_PREFERENCE_ANNOTATION,
    names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION,
    names.ALLOWED_INSTANCETYPES_ANNOTATION,
    names.EXPAND_INSTANCETYPES_ANNOTATION,
)
_SCOPES: Final = ("unsized", "all")


async def check(installation: Installation) -> list[Finding]:
    """Count modes, and read every label and annotation with our prefix."""
    namespaces = await installation.namespaces()
    if isinstance(namespaces, Unavailable):
        return [unreadable(CHECK, "namespaces", namespaces)]
    findings = [_coverage(installation, namespaces)]
    for namespace in namespaces:
        subject = f"Namespace {namespace.meta.name}"
        findings += [Finding(CHECK, subject, "warning", *problem) for problem in _labels(installation, namespace)]
        findings += [Finding(CHECK, subject, "warning", *problem) for problem in _annotations(installation, namespace)]
        for annotation, matcher in (
            (names.DEFAULT_INSTANCETYPE_ANNOTATION, INSTANCETYPE_MATCHER),
            (names.DEFAULT_PREFERENCE_ANNOTATION, PREFERENCE_MATCHER),
        ):
            given = (namespace.meta.annotation(annotation) or "").strip()
            place = f"annotation {annotation.removeprefix(_PREFIX)}"
            findings += await _default(installation, subject, place, matcher, given, namespace.meta.name or "")
    settings = installation.settings.instancetypes
    for place, matcher, given in (
        ("instancetypes.defaultInstancetype", INSTANCETYPE_MATCHER, settings.default_instancetype),
        ("instancetypes.defaultPreference", PREFERENCE_MATCHER, settings.default_preference),
    ):
        findings += await _default(installation, "settings", place, matcher, given, "")
    return findings


def _coverage(installation: Installation, namespaces: tuple[Namespace, ...]) -> Finding:
    texts, anywhere = [], False
    for policy in get_args(names.Policy):
        modes = Counter(installation.mode(namespace, policy) for namespace in namespaces)
        known = [f"{modes[mode]} {mode}" for mode in _MODES if modes[mode]]
        anywhere = anywhere or any(modes[mode] for mode in _MODES if mode != names.OFF)
        wide = " (cluster-wide)" if installation.settings.policy(policy).cluster_wide else ""
        texts.append(f"{policy}{wide}: {', '.join(known) or 'none'}")
    what = f"of {pluralize(len(namespaces), 'namespace')}, {'; '.join(texts)}"
    if anywhere:
        return Finding(CHECK, "coverage", "ok", what)
    todo = f"label one to begin with: kubectl label namespace NAME {names.policy_label(names.SCHEDULING)}=audit"
    return Finding(CHECK, "coverage", "warning", f"no namespace has opted in: {what}", todo)


def _labels(installation: Installation, namespace: Namespace) -> list[tuple[str, str]]:
    problems = []
    for key, value in (namespace.meta.labels or {}).items():
        name = key.removeprefix(_PREFIX)
        if name == key:
            continue
        if key in _ANNOTATIONS:
            problems.append((f"{name} is a label, where it does nothing", "make it an annotation"))
        elif key not in _LABELS:
            problems.append((f"the label {quote(name)} is none of ours", _closest_match(name, _LABELS)))
        elif value not in _MODES:
            near = difflib.get_close_matches(value.lower(), _MODES, n=1)
            todo = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_MODES)}"
            problems.append((f"the label {name} is {quote(value)}, which is no mode, so that nothing is done", todo))
        elif namespace.meta.name in installation.settings.excluded_namespaces and value != names.OFF:
            problems.append((f"the label {name}={value} does nothing: this namespace is never judged", "remove it"))
    return problems


def _annotations(installation: Installation, namespace: Namespace) -> list[tuple[str, str]]:
    problems = []
    for key, value in (namespace.meta.annotations or {}).items():
        name = key.removeprefix(_PREFIX)
        if name == key:
            continue
        if key in _LABELS:
            problems.append((f"{name} is an annotation, where it does nothing", "make it a label"))
        elif key not in _ANNOTATIONS:
            problems.append((f"the annotation {quote(name)} is none of ours", _closest_match(name, _ANNOTATIONS)))
        elif key == names.SCHEDULER_NAME_ANNOTATION and value not in installation.settings.scheduling.schedulers:
            declared = sorted(installation.settings.scheduling.schedulers)
            todo = f"declare it under schedulers, or name one of {several(declared) or 'none that are declared'}"
            problems.append((f"it names the scheduler {quote(value)}, which the settings don't declare", todo))
        elif key == names.SPREAD_ANNOTATION and value.strip() not in names.SPREADS:
            problems.append((f"the annotation {name} is {quote(value)}", f"use one of {', '.join(names.SPREADS)}"))
        elif key == names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION and value.strip() not in _SCOPES:
            problems.append((f"the annotation {name} is {quote(value)}", f"use one of {', '.join(_SCOPES)}"))
        elif key == names.EXPAND_INSTANCETYPES_ANNOTATION and value not in ("true", "false"):
            problems.append((f"the annotation {name} is {quote(value)}", 'use "true" or "false"'))
    return problems


def _closest_match(name: str, known: tuple[str, ...]) -> str:
    short = [key.removeprefix(_PREFIX) for key in known]
    near = difflib.get_close_matches(name, short, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(short)}"


async def _default(
    installation: Installation, subject: str, place: str, matcher: Matcher, given: str, namespace: str
) -> list[Finding]:
    """Whether what a default names is there.

    Args:
        namespace: where a namespaced kind is looked for; empty: in every namespace another, so not at all.
    """
    if not given:
        return []
    try:
        reference = parse(matcher, given, place)
    except InputError as error:
        return [Finding(CHECK, subject, "warning", f"{place}: {error.what}", error.fix)]
    resource = RESOURCES[reference.kind]
    if resource.namespaced and not namespace:
        return []
    found = await installation.reader.get(resource, namespace, reference.name)
    if isinstance(found, Unavailable):
        return [unreadable(CHECK, subject, found)]
    if found is None:
        what = f"{place} names {reference}, which isn't there"
        return [Finding(CHECK, subject, "warning", what, "create it, or name another")]
    return []
