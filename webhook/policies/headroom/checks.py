"""What doctor checks of the headroom policy: whether anything is decided, and which VMs wait for room."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.findings import Finding, check, ok, readable, warning
from webhook.kubevirt.run_strategy import STARTED_VMS
from webhook.placement.headroom.pods import read_vm
from webhook.policies.headroom.settings import HEADROOM, HeadroomSettings
from webhook.policy import Installed
from webhook.text import abbreviate, pluralize

_VMS: Final = "VMs"


@check("headroom")
async def check_headroom(installation: Installed) -> list[Finding]:
    """Look at whether namespaces ask for what is switched off, and at the VMs that were denied a start."""
    settings = installation.settings.of(HeadroomSettings)
    modes = readable("namespaces", await installation.modes(HEADROOM))
    asking = [name for name, mode in modes.items() if mode in (names.ENFORCE, names.WARN, names.AUDIT)]
    if not asking:
        return []
    if not settings.enabled:
        what = f"headroom.enabled is off: nothing is decided in {abbreviate(sorted(asking))}"
        todo = "switch headroom.enabled on, and run install, which brings its role; or remove the labels"
        return [warning("not-enabled", "settings", what, todo)]
    enforced = {name for name in asking if modes[name] == names.ENFORCE}
    waiting = []
    for vm in readable(_VMS, await installation.reader.all(STARTED_VMS)) if enforced else ():
        known = read_vm(vm)
        if vm.meta.namespace in enforced and known.is_denied and not known.is_stopped:
            waiting.append(f"{vm.meta.namespace}/{vm.meta.name}")
    if waiting:
        what = f"{pluralize(len(waiting), 'VM')} may not start for want of headroom: {abbreviate(sorted(waiting))}"
        todo = f"kubevirt-webhook explain vm {min(waiting)} says what would help"
        return [warning("starts-denied", _VMS, what, todo)]
    return [ok("in-order", _VMS, f"none waits for headroom; {pluralize(len(enforced), 'namespace')} in mode enforce")]
