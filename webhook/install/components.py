"""What parts of a server may do beyond the roles of every installation: ``manifests/components``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.settings.fields import is_loopback
from webhook.settings.model import Settings


class Component(msgspec.Struct, frozen=True):
    """Roles and bindings that some settings need.

    Attributes:
        name: of the directory in ``manifests/components``.
        is_needed: whether the settings switch on what needs them.
    """

    name: str
    is_needed: Callable[[Settings], bool]


FIDELITY: Final = Component("fidelity", lambda settings: settings.of(InstancetypeSettings).fidelity_check.sample > 0)
EVENTS: Final = Component("events", lambda settings: settings.events)
DRIFT: Final = Component("drift", lambda settings: settings.drift_scan.every_minutes > 0)
# To verify tokens, which on a loopback address nobody needs.
ADMIN: Final = Component(
    "admin", lambda settings: bool(settings.admin.listen) and not is_loopback(settings.admin.listen)
)
POLICY_REPORTS: Final = Component(
    "policyreports", lambda settings: DRIFT.is_needed(settings) and settings.drift_scan.policy_reports
)
COMPONENTS: Final = (FIDELITY, EVENTS, DRIFT, ADMIN, POLICY_REPORTS)
