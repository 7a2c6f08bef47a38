"""Reviews of any endpoint, facts for them, and a policy with a bug."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.builders import Json, known, review
from tests.review.memory import PODS
from webhook import names
from webhook.admission.decision import Decision
from webhook.facts import Key, NamespaceKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.review.endpoints import Endpoint


def with_policy(policy: Any, on_error: Any = "allow", stage: Any = "enforce") -> Endpoint:
    return msgspec.structs.replace(PODS, handler=policy, on_error=on_error, stage=stage)


def raise_bug(*_: object) -> Decision:
    raise ZeroDivisionError


MIGRATION_PATH = "/validate/migration/virtualmachineinstancemigrations/"


VM_RULES_PATH = "/validate/instancetypes/virtualmachines/"


def facts_under(policy: str, mode: str | None, annotations: Json | None = None) -> dict[Key[Any], object]:
    there = Namespace(
        ObjectMeta(name="demo", labels={names.policy_label(policy): mode} if mode else {}, annotations=annotations)
    )
    return known() | {NamespaceKey("demo"): there, NamespaceKey("demo", fresh=True): there}


def review_of(endpoint: Endpoint, obj: Any, **request: Any) -> Json:
    """A review of an endpoint's kind, about anything."""
    kind = {"group": endpoint.codec.group, "version": "v1", "kind": endpoint.kind}
    asked = review({"kind": "Pod"}, kind=kind, subResource=endpoint.sub_resource or None)
    asked["request"] |= {"object": obj} | request
    return asked
