"""KubeVirt is updated under a running server: its reviews follow, without a restart and without a mixture of rules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec

from tests import builders
from tests.builders import review
from tests.cluster.live_case import LiveCase, live
from tests.waiting import until
from webhook import names
from webhook.admission.audit import NoAudit
from webhook.facts import KubeVirtKey
from webhook.k8s.resources import NAMESPACES
from webhook.kubevirt.resources import KUBEVIRTS, PRESETS, UNSTRUCTURED
from webhook.review.endpoints import BY_PATH
from webhook.review.reviewer import Observer, Reviewer
from webhook.settings.model import InstancetypeSettings

ENDPOINT = BY_PATH["/mutate/instancetypes/virtualmachineinstances/enforce"]
PANICKING = UNSTRUCTURED["VirtualMachineClusterPreference"]


def put_kubevirt(case: LiveCase, observed: str, target: str) -> None:
    status = {"phase": "Deployed", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target}
    case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status=status)


async def has_panic_device(reviewer: Reviewer) -> bool:
    """The answer to a review: KubeVirt 1.9 adds the device that the preference names, and earlier releases don't."""
    bare = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "bare", "namespace": "demo", "annotations": {names.PREFERENCE_ANNOTATION: "panicking"}},
        "spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}},
    }
    deadline = asyncio.get_running_loop().time() + 10
    verdict = await reviewer.evaluate(ENDPOINT, msgspec.json.encode(review(bare)), deadline)
    assert verdict.label == "patched", verdict.decision
    assert verdict.patch
    return any("panicDevices" in json.dumps(operation) for operation in json.loads(verdict.patch))


async def test_an_update_of_kubevirt_is_followed(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(builders.settings(), instancetypes=InstancetypeSettings(cluster_wide=True))
    async with live(tmp_path, settings) as case:
        spec = {"devices": {"preferredPanicDeviceModel": "isa"}}
        case.server.serve(PRESETS)
        case.server.put(PANICKING, "panicking", spec=spec)
        case.server.put(NAMESPACES, "demo")
        put_kubevirt(case, "v1.8.4", "v1.8.4")
        case.cluster.start()
        await case.ready()
        reviewer = Reviewer(case.cluster, lambda: settings, NoAudit(), Observer())
        before: Any = case.cluster.peek(KubeVirtKey())

        assert not await has_panic_device(reviewer)
        put_kubevirt(case, "v1.8.4", "v1.9.0")
        await until(lambda: case.cluster.peek(KubeVirtKey()) is not before)
        assert not await has_panic_device(reviewer)
        put_kubevirt(case, "v1.9.0", "v1.9.0")
        answers = [await has_panic_device(reviewer)]
        while not answers[-1]:
            answers.append(await has_panic_device(reviewer))
        # Once the new rules count they stay.
        assert [await has_panic_device(reviewer) for _ in range(20)] == [True] * 20
        assert sorted(answers) == answers
