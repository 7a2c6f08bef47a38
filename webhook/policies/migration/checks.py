"""What doctor checks of the migration policy."""

from __future__ import annotations

from typing import Final

from webhook.findings import Finding, check, ok, warning
from webhook.policies.migration.settings import MigrationSettings
from webhook.policy import Installed

_REQUIRE_RIGHT: Final = "migration.requireRight"


@check("pinning")
async def check_pinning(installation: Installed) -> list[Finding]:
    """Look for a way around the permission that the settings require."""
    migration = installation.settings.of(MigrationSettings)
    if not migration.require_right:
        return [ok("not-required", _REQUIRE_RIGHT, "false: every user that may migrate a VM may choose its nodes")]
    if migration.via_virtctl == "allow":
        why = "virt-api creates the migration under its own account, and migration.viaVirtctl is allow"
        todo = "set migration.viaVirtctl to deny, or grant virtualmachines/migrate only to users that may choose nodes"
        return [warning("bypassed-by-virtctl", _REQUIRE_RIGHT, f"true, but virtctl bypasses it: {why}", todo)]
    return [ok("required", _REQUIRE_RIGHT, "true, also for migrations by virtctl")]
