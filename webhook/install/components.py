"""What parts of a server may do beyond the roles of every installation: ``manifests/components``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from webhook.install.roles import NAME, Role
from webhook.k8s.resources import EVENTS as EVENT_OBJECTS
from webhook.k8s.resources import PODS
from webhook.k8s.resources import POLICY_REPORTS as POLICY_REPORT_OBJECTS
from webhook.k8s.rights import Right
from webhook.kubevirt.resources import UNSTRUCTURED_VMS, VMIS
from webhook.placement.machines import MIGRATIONS
from webhook.policies.headroom.settings import HeadroomSettings
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.preemption.settings import PreemptionSettings
from webhook.settings.fields import is_loopback
from webhook.settings.model import Settings

_READS_VMS: Final = "A user who may list VMs can read the cloud-init that they hold."


class Component(msgspec.Struct, frozen=True):
    """A role that some settings need.

    Attributes:
        name: of the directory in ``manifests/components``.
        is_needed: whether the settings switch on what needs it.
        rights: what it grants.
        about: comment above it.
    """

    name: str
    is_needed: Callable[[Settings], bool]
    rights: tuple[Right, ...]
    about: str = ""

    @property
    def role(self) -> Role:
        """The role, with its binding."""
        return Role(f"{NAME}-{self.name}", self.rights, self.about)


FIDELITY: Final = Component(
    "fidelity",
    lambda settings: settings.of(InstancetypeSettings).fidelity_check.sample > 0,
    (Right.on(UNSTRUCTURED_VMS, verbs=("get", "list")),),
    _READS_VMS,
)
EVENTS: Final = Component(
    "events",
    lambda settings: settings.events,
    (Right.on(EVENT_OBJECTS, verbs=("create", "patch")),),
)
DRIFT: Final = Component(
    "drift",
    lambda settings: settings.drift_scan.every_minutes > 0,
    (
        Right.on(PODS, verbs=("list",)),
        Right.on(UNSTRUCTURED_VMS, VMIS, verbs=("list",)),
    ),
    _READS_VMS,
)
# To verify tokens, which on a loopback address nobody needs.
ADMIN: Final = Component(
    "admin",
    lambda settings: bool(settings.admin.listen) and not is_loopback(settings.admin.listen),
    (
        Right("authentication.k8s.io", ("tokenreviews",), ("create",), "whose token is it?"),
        Right("authorization.k8s.io", ("subjectaccessreviews",), ("create",), "may its user see what is asked for?"),
    ),
)
POLICY_REPORTS: Final = Component(
    "policyreports",
    lambda settings: DRIFT.is_needed(settings) and settings.drift_scan.policy_reports,
    (Right.on(POLICY_REPORT_OBJECTS, verbs=("list", "create", "patch", "delete")),),
)
PREEMPTION: Final = Component(
    "preemption",
    lambda settings: settings.of(PreemptionSettings).request_migrations,
    (Right.on(MIGRATIONS, verbs=("create",)),),
    "Whoever may create migrations can move any VM that can be moved, to nodes of his choice.",
)
HEADROOM: Final = Component(
    "headroom",
    lambda settings: settings.of(HeadroomSettings).enabled,
    (Right.on(PODS, verbs=("list", "watch")), Right.on(UNSTRUCTURED_VMS, verbs=("list", "watch"))),
    _READS_VMS,
)
COMPONENTS: Final = (FIDELITY, EVENTS, DRIFT, ADMIN, POLICY_REPORTS, PREEMPTION, HEADROOM)
