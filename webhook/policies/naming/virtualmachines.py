"""VMs whose names KubeVirt can start and never migrate.

Upstream's rules: migrations have the VM's name as the value of a label; the claim of persistent state is looked for by
a name that holds the VM's (pkg/storage/backend-storage, ``CurrentPVCName``), which the API server cuts off where it
generates it. Later patch releases find it by its label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.admission.decision import Decision, allow, deny
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts, Unreadable
from webhook.k8s.types.meta import Object, View
from webhook.kubevirt.config import DEFAULTS
from webhook.placement.machines import STATE_PREFIX, Domain
from webhook.policies.common.migration_targets import loses_state, name_problem
from webhook.policies.common.required_facts import read_configuration
from webhook.policies.naming import reasons
from webhook.policies.naming.settings import NamingSettings

_FIELD: Final = "metadata.name"
# The API server keeps so many characters of a prefix from which it generates a name (k8s.io/apiserver, names).
_GENERATED: Final = 58
# What fits between ``persistent-state-for-`` and the end of that; a longer name is cut off.
MAX_WITH_STATE: Final = _GENERATED - len(f"{STATE_PREFIX}-")


class _VmiSpec(View, frozen=True):
    domain: Domain | None = None


class _Template(View, frozen=True):
    spec: _VmiSpec | None = None


class _VmSpec(View, frozen=True):
    template: _Template | None = None


class NamedVm(Object, frozen=True):
    """A VirtualMachine, as far as it says whether its name is too long."""

    spec: _VmSpec | None = None

    @property
    def has_state(self) -> bool:
        """Whether KubeVirt keeps its TPM or EFI variables in a claim, whatever a preference adds."""
        template = self.spec.template if self.spec else None
        domain = template.spec.domain if template and template.spec else None
        return bool(domain and domain.has_state)


def of_long_names(_: NamingSettings) -> Mapping[str, str]:
    """The conditions on VMs, by name: shorter names can be migrated in any case."""
    return {"long-name": f"object.metadata.name.size() > {MAX_WITH_STATE}"}


async def validate_name(vm: NamedVm, request: Request[NamedVm], facts: Facts, _: NamingSettings) -> Decision:
    """Deny a new VM whose name keeps KubeVirt from migrating it."""
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a VM's name", request.operation))
    name = vm.meta.name or ""
    if problem := name_problem(name):
        return deny(reasons.too_long(problem), 422, _FIELD)
    if len(name) <= MAX_WITH_STATE or not vm.has_state:
        return Decision((reasons.migratable,))
    try:
        configuration = await read_configuration(facts) or DEFAULTS
    except Unreadable as error:
        what = "whether KubeVirt can migrate a VM of this name is not known"
        return allow(common.lookup_failed(what, error.why), warn=True)
    if not loses_state(configuration.release):
        return Decision((reasons.migratable,))
    return deny(reasons.state_not_found(str(configuration.release), str(MAX_WITH_STATE)), 422, _FIELD)
