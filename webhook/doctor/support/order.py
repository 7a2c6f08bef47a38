"""Who else is asked about the same objects, before and after us?

The API server asks mutating webhooks in the order of their configurations' names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook import names
from webhook.doctor.support.finding import Finding, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import InstalledWebhookConfiguration, WebhookEntry
from webhook.errors import Unavailable

CHECK: Final = "order"

_KUBEVIRTS_MUTATOR: Final = "virt-api-mutator"
# virt-api-mutator, -validator, virt-operator-validator, virt-launcher-pod-mutator: Fail with 10 s is what they are.
_KUBEVIRTS: Final = ("virt-api-", "virt-operator-", "virt-launcher-")
_LONG_SECONDS: Final = 10
_PODS: Final = ("", ("pods", "*", "*/*"))
_VMS: Final = (names.KUBEVIRT_GROUP, ("virtualmachines", "*", "*/*"))
_OURS: Final = (
    _PODS,
    ("", ("pods/eviction", "pods/*", "*/*")),
    *((names.KUBEVIRT_GROUP, (plural, "*", "*/*")) for plural in ("virtualmachines", "virtualmachineinstances")),
    (names.KUBEVIRT_GROUP, ("virtualmachineinstancemigrations", "*", "*/*")),
)


async def check(installation: Installation) -> list[Finding]:
    """Look at every mutating configuration's name, and at what others can do to the same requests."""
    live = await installation.every_configuration()
    if isinstance(live, Unavailable):
        return [unreadable(CHECK, "webhook configurations", live)]
    mutating = sorted((one for kind, one in live if kind.startswith("Mutating")), key=lambda one: one.meta.name or "")
    others = [one for one in mutating if not one.ours]
    return [*_vms(others), *_pods(others), *_slow([one for _, one in live if not one.ours])]


def _vms(others: list[InstalledWebhookConfiguration]) -> list[Finding]:
    subject = "VMs"
    first = [_name(one) for one in others if _name(one) < names.FIRST_CONFIGURATION and _asks(one, *_VMS)]
    if first:
        what = f"{several(first)} {'changes' if len(first) == 1 else 'change'} VMs before us"
        return [Finding(CHECK, subject, "ok", f"{what}: what they set counts as the owner's choice")]
    if _KUBEVIRTS_MUTATOR not in map(_name, others):
        what, todo = f"there is no {_KUBEVIRTS_MUTATOR}", "see that KubeVirt runs; without it nothing is judged"
        return [Finding(CHECK, subject, "warning", what, todo)]
    return [Finding(CHECK, subject, "ok", f"we are asked before {_KUBEVIRTS_MUTATOR}")]


def _pods(others: list[InstalledWebhookConfiguration]) -> list[Finding]:
    after = [_name(one) for one in others if _name(one) > names.LAST_CONFIGURATION and _asks(one, *_PODS)]
    if after:
        what = f"{several(after)} {'is' if len(after) == 1 else 'are'} asked after us, and can set another scheduler"
        todo = f"rename what sets schedulerName so that it sorts before {names.LAST_CONFIGURATION}"
        return [Finding(CHECK, "pods", "warning", what, todo)]
    before = [_name(one) for one in others if _asks(one, *_PODS)]
    what = f"we are asked after {several(before)}" if before else "nobody else changes pods"
    return [Finding(CHECK, "pods", "ok", what)]


def _slow(others: Iterable[InstalledWebhookConfiguration]) -> list[Finding]:
    """Not our mistake, but it is what people take for ours."""
    slow = [
        f"{_name(one)} ({entry.timeout_seconds or _LONG_SECONDS} s)"
        for one in others
        if not _name(one).startswith(_KUBEVIRTS)
        for entry in one.entries
        if (entry.failure_policy or "Fail") == "Fail"
        and (entry.timeout_seconds or _LONG_SECONDS) >= _LONG_SECONDS
        and any(_matches(entry, group, resources) for group, resources in _OURS)
    ]
    if not slow:
        return []
    what = f"of other programs, these can refuse the same requests, and delay them for long: {several(slow)}"
    return [Finding(CHECK, "others", "ok", what)]


def _name(configuration: InstalledWebhookConfiguration) -> str:
    return configuration.meta.name or ""


def _asks(configuration: InstalledWebhookConfiguration, group: str, resources: tuple[str, ...]) -> bool:
    return any(_matches(entry, group, resources) for entry in configuration.entries)


def _matches(entry: WebhookEntry, group: str, resources: tuple[str, ...]) -> bool:
    """Whether it can be asked about a CREATE of launcher pods, VMs and the like."""
    expected = (entry.object_selector.match_labels or {}) if entry.object_selector else {}
    if group == "" and expected.get(names.APP_LABEL, names.LAUNCHER_APP) != names.LAUNCHER_APP:
        return False
    return any(
        {group, "*"} & set(rule.api_groups or ())
        and {"CREATE", "*"} & set(rule.operations or ())
        and set(resources) & set(rule.resources or ())
        for rule in entry.rules or ()
    )
