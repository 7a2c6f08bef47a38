"""A decision of the scheduling policy, a call: no server, no loop, no cluster."""

from __future__ import annotations

from typing import Any

import jsonpatch
import msgspec
from hypothesis import strategies as st

from tests import builders
from tests.builders import Json, known
from webhook import names
from webhook.admission.decision import Decision
from webhook.admission.patch import operations
from webhook.facts import Facts
from webhook.k8s.types.meta import ObjectMeta
from webhook.kubevirt.types.views import ControllerRevision, InstancetypeSpec, RevisionData
from webhook.review.endpoints import BY_PATH

MARK = names.INJECTED_SCHEDULER_ANNOTATION
POD_MARK_PATH = ("metadata", "annotations", MARK)
VM_SCHEDULER = ("spec", "template", "spec", "schedulerName")


def decide(body: Json, facts: dict[Any, object] | None = None, **settings: Any) -> Decision:
    """The decision of the endpoint that serves the review's resource, and its idempotence."""
    resource = body["request"]["resource"]["resource"]
    endpoint = BY_PATH[f"/mutate/scheduling/{resource}/enforce"]
    request = endpoint.codec.decode(msgspec.json.encode(body)).request
    section = builders.scheduling(**settings)
    facts = known() if facts is None else facts
    decision = endpoint.handler(request.object, request, Facts.of(facts), section)
    if decision.changes and request.operation == "CREATE":
        ops = msgspec.to_builtins(operations(request.object, decision.changes))
        again = msgspec.json.decode(msgspec.json.encode(body))
        again["request"]["object"] = jsonpatch.apply_patch(again["request"]["object"], ops)
        second = endpoint.codec.decode(msgspec.json.encode(again)).request
        repeated = endpoint.handler(second.object, second, Facts.of(facts), section)
        assert not operations(second.object, repeated.changes), "a reinvocation must change nothing"
    return decision


def changes(decision: Decision) -> dict[tuple[str, ...], Any]:
    return {change.path: change.new for change in decision.changes}


def captured(kind: str | None, spec: InstancetypeSpec | None = None, name: str = "u1") -> ControllerRevision:
    """A revision with the labels of KubeVirt's."""
    labels = {names.REVISION_OBJECT_NAME_LABEL: name, names.REVISION_OBJECT_KIND_LABEL: kind or ""}
    return ControllerRevision(ObjectMeta(labels=labels), RevisionData(kind, spec, "instancetype.kubevirt.io/v1beta1"))


SCHEDULERS: st.SearchStrategy[Any] = st.sampled_from([..., None, "", "default-scheduler", "kubevirt", "batch", "x"])
ANNOTATIONS = st.sampled_from([None, "", "kubevirt", "batch", "x"])
