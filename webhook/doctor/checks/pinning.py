"""Who may choose the nodes of a migration?"""

from __future__ import annotations

from typing import Final

from webhook.doctor.support.finding import Finding
from webhook.doctor.support.installation import Installation

CHECK: Final = "pinning"
_SUBJECT: Final = "migration.requireRight"


async def check(installation: Installation) -> list[Finding]:
    """What the settings say, and what they leave open."""
    migration = installation.settings.migration
    if not migration.require_right:
        return [Finding(CHECK, _SUBJECT, "ok", "off: whoever may migrate a VM may choose its nodes")]
    if migration.via_virtctl == "allow":
        what = "virtctl bypasses it: KubeVirt's API account migrates for everybody, and migration.viaVirtctl allows it"
        todo = "set migration.viaVirtctl to deny, or grant virtualmachines/migrate only to those who may pin"
        return [Finding(CHECK, _SUBJECT, "warning", what, todo)]
    return [Finding(CHECK, _SUBJECT, "ok", "on, for virtctl too")]
