"""What doctor checks of the sizes policy."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.errors import InputError
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NAMESPACES
from webhook.policies.sizes.settings import read_annotation
from webhook.policy import Installed
from webhook.text import pluralize

_SUBJECT: Final = "namespaces"


@check("size-limits")
async def check_annotations(installation: Installed) -> list[Finding]:
    """Read the limits of every namespace that has its own."""
    listed = readable(_SUBJECT, await installation.reader.all(NAMESPACES))
    findings, count = [], 0
    for namespace in listed:
        text = namespace.meta.annotation(names.SIZE_LIMITS_ANNOTATION)
        if text is None:
            continue
        count += 1
        try:
            read_annotation(text)
        except InputError as error:
            what = f"{error}, so the limits of the settings count"
            findings.append(warning("annotation-invalid", f"Namespace {namespace.meta.name}", what, "correct it"))
    whose = "size limits of its own" if count == 1 else "size limits of their own"
    return findings or [ok("readable", _SUBJECT, f"{pluralize(count, 'namespace')} with {whose}")]
