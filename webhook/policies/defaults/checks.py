"""What doctor checks of the defaults policy: PriorityClasses that are missing."""

from __future__ import annotations

from webhook import names
from webhook.errors import Unavailable
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NAMESPACES
from webhook.policies.defaults.settings import ANNOTATIONS, DEFAULTS, DefaultsSettings
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES
from webhook.policy import Installed
from webhook.text import pluralize


@check("defaults")
async def check_defaults(installation: Installed) -> list[Finding]:
    """Look for the PriorityClasses that settings and namespaces name."""
    settings = installation.settings.of(DefaultsSettings)
    namespaces = readable("namespaces", await installation.reader.all(NAMESPACES))
    sections, own = {"settings": settings}, 0
    for namespace in namespaces:
        annotations = namespace.meta.annotations or {}
        if annotations.keys() & set(ANNOTATIONS.values()):
            section = settings.with_annotations(annotations)
            if not section.annotation_mistakes:
                own += 1
            sections[f"Namespace {namespace.meta.name}"] = section
    findings: list[Finding] = []
    modes = await installation.modes(DEFAULTS)
    # Nobody gets a class there, and the annotation may wait for better days.
    off = () if isinstance(modes, Unavailable) else [f"Namespace {name}" for name in modes if modes[name] == names.OFF]
    named = {
        subject: name
        for subject, section in sections.items()
        if (name := section.priority_class_name) and subject not in off
    }
    if named:
        classes = readable("priorityclasses", await installation.reader.all(PRIORITY_CLASSES))
        existing = {each.meta.name for each in classes}
        findings += [
            warning(
                "priority-class-missing",
                subject,
                f"the default PriorityClass {name} does not exist, so no VM gets it",
                "create it, or name another",
            )
            for subject, name in named.items()
            if name not in existing
        ]
    count = pluralize(own, "namespace")
    return findings or [
        ok("defaults-valid", "defaults", f"no mistakes in the settings and in {count} with annotations")
    ]
