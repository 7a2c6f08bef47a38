"""What doctor checks of names: the VMs that run and can never be migrated because of theirs."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from webhook.findings import Finding, check, ok, readable, warning
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, KubeVirtInstall
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.machines import PLACED_VMIS, Vmi
from webhook.policies.common.migration_targets import name_problem, state_problem
from webhook.policy import Installed
from webhook.text import abbreviate, pluralize

_VMS: Final = "VMs"
_TODO: Final = "create them again by another name; until then, shut them down yourself before their nodes are drained"


@check("names")
async def check_names(installation: Installed) -> list[Finding]:
    """Look at the VMs that run, in all namespaces: a name that is too long hurts at the next drain of the node."""
    vmis = [vmi for vmi in readable(_VMS, await installation.reader.all(PLACED_VMIS)) if not vmi.has_ended]
    install = KubeVirtInstall.of(readable("KubeVirt", await installation.reader.all(KUBEVIRTS)))
    # One that cannot be read is what the check of KubeVirt reports.
    known = install.configuration if install and isinstance(install.configuration, ClusterConfig) else DEFAULTS
    affected: dict[str, list[str]] = defaultdict(list)
    for vmi in vmis:
        name = vmi.meta.name or ""
        if name_problem(name):
            affected["KubeVirt labels migrations with it, and a label has at most 63 characters"].append(_named(vmi))
        elif state_problem(vmi, known.release):
            why = f"KubeVirt {known.release} does not find its persistent state (TPM, EFI)"
            affected[f"{why} where it has more than 37 characters"].append(_named(vmi))
    return [
        warning("unmigratable", _VMS, f"{_cannot(len(those))}: {why}: {abbreviate(those)}", _TODO)
        for why, those in affected.items()
    ] or [ok("migratable", _VMS, f"the names of {pluralize(len(vmis), 'VM')} are short enough for migrations")]


def _cannot(number: int) -> str:
    return f"{pluralize(number, 'VM')} cannot be migrated because of the name"


def _named(vmi: Vmi) -> str:
    return f"{vmi.meta.namespace}/{vmi.meta.name}"
