"""Looks at who may choose the nodes of a migration."""

from __future__ import annotations

from typing import Final

from webhook.doctor.support.finding import Finding
from webhook.doctor.support.installation import Installation

CHECK: Final = "pinning"
_SUBJECT: Final = "migration.requireRight"


async def check(installation: Installation) -> list[Finding]:
    """Look for a way around the permission that the settings require."""
    migration = installation.settings.migration
    if not migration.require_right:
        what = "false: every user that may migrate a VM may choose its nodes"
        return [Finding(CHECK, "not-required", _SUBJECT, "ok", what)]
    if migration.via_virtctl == "allow":
        what = (
            "true, but virtctl bypasses it: virt-api creates the migration under its own account, "
            "and migration.viaVirtctl is allow"
        )
        todo = "set migration.viaVirtctl to deny, or grant virtualmachines/migrate only to users that may choose nodes"
        return [Finding(CHECK, "bypassed-by-virtctl", _SUBJECT, "warning", what, todo)]
    return [Finding(CHECK, "required", _SUBJECT, "ok", "true, also for migrations by virtctl")]
