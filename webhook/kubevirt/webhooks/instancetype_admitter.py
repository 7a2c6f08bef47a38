"""What KubeVirt's webhooks answer to instancetypes and preferences themselves."""

from __future__ import annotations

from typing import Any, Final

from webhook.kubevirt.go_json.structs import Json, decode
from webhook.kubevirt.instancetype import cpu_topology
from webhook.kubevirt.instancetype.conflict import Cause
from webhook.kubevirt.instancetype.cpu_topology import CORES_THREADS, DEPRECATED, Topology
from webhook.kubevirt.releases.capabilities import WARNS_OF_LAUNCH_SECURITY
from webhook.kubevirt.rules import NEWEST, Rules
from webhook.kubevirt.webhooks.vm_admitter import VmAdmission, deny

_INVALID: Final = "FieldValueInvalid"
_OVERCOMMIT: Final = "spec.memory.overcommitPercent"
_HUGEPAGES: Final = "spec.memory.hugepages"
_LAUNCH_SECURITY: Final = (
    "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
)


def instancetype(given: Any, rules: Rules = NEWEST) -> VmAdmission:
    """The answer to an instancetype of either scope.

    Args:
        given: plain JSON.
        rules: the rules of the release that answers.

    Raises:
        InputError: it is malformed.
    """
    spec = decode(rules.types.instancetype, given)["spec"]
    percent, causes = spec["memory"].get("overcommitPercent", 0), []
    if not 0 <= percent <= 100:
        text = f"{_OVERCOMMIT} '{percent}': must be in range between 0 and 100."
        causes.append(Cause(_INVALID, text, _OVERCOMMIT))
    if percent and "hugepages" in spec["memory"]:
        text = f"{_OVERCOMMIT} and {_HUGEPAGES} should not be requested together."
        causes.append(Cause(_INVALID, text, _OVERCOMMIT))
    warns = "launchSecurity" in spec and rules.has(WARNS_OF_LAUNCH_SECURITY)
    return _answer(causes, [_LAUNCH_SECURITY] if warns else [])


def preference(given: Any, rules: Rules = NEWEST) -> VmAdmission:
    """The answer to a preference of either scope.

    Args:
        given: plain JSON.
        rules: the rules of the release that answers.

    Raises:
        InputError: it is malformed.
    """
    spec = decode(rules.types.preference, given)["spec"]
    name = spec.get("cpu", {}).get("preferredCPUTopology")
    wanted = cpu_topology.preferred_topology(spec)
    if wanted is None:
        return deny([Cause(_INVALID, f"unknown preferredCPUTopology {name}", "spec.cpu.preferredCPUTopology")])
    causes = _check_spread(spec) if wanted is Topology.SPREAD else []
    warnings = []
    if name in DEPRECATED:
        warnings.append(
            f"PreferredCPUTopology {name} is deprecated for removal in a future release, please use "
            f"{DEPRECATED[name].value} instead"
        )
    return _answer(causes, warnings)


def _check_spread(spec: Json) -> list[Cause]:
    across, ratio = cpu_topology.preferred_spread(spec)
    if across not in cpu_topology.ACROSS:
        return [Cause(_INVALID, f"across {across} is not supported", "spec.cpu.spreadOptions.across")]
    if across == CORES_THREADS and ratio != 2:
        text = "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"
        return [Cause(_INVALID, text, "spec.cpu.spreadOptions.ratio")]
    return []


def _answer(causes: list[Cause], warnings: list[str]) -> VmAdmission:
    # KubeVirt warns only of what it allows.
    return deny(causes) if causes else VmAdmission(warnings=warnings)
