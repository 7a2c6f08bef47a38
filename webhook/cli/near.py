"""What a VM may mean whose instancetype or preference does not exist: one of nearly the same name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import ListKey
from webhook.forecast.validation import did_you_mean
from webhook.k8s.types.meta import Object
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.find import MATCHERS
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.resources import UNSTRUCTURED

# Less is another name.
_NEAR: Final = 0.7
# Kind, namespace and name of objects in files.
Known = Collection[tuple[str, str, str]]


async def question(vm: Json, namespace: str, cluster: Cluster | None, deadline: float, known: Known = ()) -> str:
    """A question for each matcher of a VM whose object does not exist although one of nearly its name does.

    Args:
        vm: plain JSON.
        namespace: that of the VM.
        cluster: where the names are listed; None: nowhere.
        deadline: of look-ups, on the running loop's clock, in seconds.
        known: objects that are in no cluster.

    Returns:
        Sentences; empty where nothing is near.
    """
    questions = []
    for matcher in MATCHERS:
        value: Any = (vm.get("spec") or {}).get(matcher.field)
        if not isinstance(value, dict) or not isinstance(name := value.get("name"), str):
            continue
        try:
            kind = matcher.kind_of(str(value.get("kind") or ""))
        except Rejection:
            questions.append(did_you_mean(str(value["kind"]), (matcher.namespaced, matcher.cluster), _NEAR))
            continue
        resource = UNSTRUCTURED[kind]
        where = namespace if resource.namespaced else ""
        names = {each for of_kind, inside, each in known if (of_kind, inside) == (kind, where)}
        listed: tuple[Object, ...] | Unavailable | None = ()
        if cluster:
            listed = await cluster.read(ListKey(resource, where), deadline)
        names.update(each.meta.name or "" for each in (() if isinstance(listed, Unavailable) else listed or ()))
        questions.append("" if name in names else did_you_mean(name, sorted(names), _NEAR))
    return " ".join(f"D{each.removeprefix('; d')}" for each in questions if each)
