"""Namespaces whose annotations a policy can find wrong: what it cannot read is denied where it is written.

The annotations with a list of values are not among them: the ValidatingAdmissionPolicy on namespaces denies other
values, also while no replica answers. It looks into no other annotation, since CEL can neither parse JSON nor has the
rules of settings for plain text; these come here, of whichever of the two they are (`PolicySettings.with_annotations`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from webhook import names
from webhook.admission.decision import Decision, allow, deny
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace
from webhook.names import PolicyName
from webhook.policy import PolicyEndpoint, both_stages
from webhook.settings.policy_section import PolicySettings


def validates_annotations(
    policy: PolicyName, annotations: Collection[str]
) -> tuple[PolicyEndpoint[Namespace, Any], ...]:
    """The endpoints of a policy for namespaces, which deny what it cannot read of its annotations.

    Only requests that set or change one of them are sent, and those that change the policy's mode beside one. While no
    replica answers, all are allowed.

    Args:
        policy: the policy's name.
        annotations: the keys of the annotations that can have mistakes: those in `annotation_mistakes`.
    """
    label = names.policy_label(policy)

    async def validate(
        namespace: Namespace, request: Request[Namespace], _: Facts, settings: PolicySettings
    ) -> Decision:
        old = request.old_object if request.operation == "UPDATE" else None
        # A mistake that is older than the request has no effect, and keeps nobody from other changes.
        switched_on = old is None or old.meta.label(label) != namespace.meta.label(label)
        for key, mistake in settings.annotation_mistakes.items():
            if switched_on or old is None or old.meta.annotation(key) != namespace.meta.annotation(key):
                return deny(common.annotation_invalid(mistake), 422, f"metadata.annotations[{key}]")
        return allow(common.annotations_valid)

    def conditions(_: PolicySettings) -> Mapping[str, str]:
        return {"sets-an-annotation": _sets_one(annotations, label)}

    return both_stages(
        "validate",
        policy,
        NAMESPACES,
        validate,
        match_conditions=conditions,
        always_ignores=True,
        operations=("CREATE", "UPDATE"),
    )


def _sets_one(annotations: Collection[str], label: str) -> str:
    """The request brings one of the annotations into effect."""
    keys = msgspec.json.encode(list(annotations)).decode()
    old_label, new_label = (f'{each}.metadata.?labels[?"{label}"].orValue("")' for each in ("oldObject", "object"))
    old = "oldObject.metadata.?annotations[?key]"
    return (
        f"has(object.metadata.annotations) && {keys}.exists(key, key in object.metadata.annotations &&"
        f' (oldObject == null || {old}.orValue("") != object.metadata.annotations[key] || {old_label} != {new_label}))'
    )
