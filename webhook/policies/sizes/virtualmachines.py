"""VMs that set a size themselves: at CREATE, and where an update changes it."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Decision, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import InputError
from webhook.facts import Facts, Unreadable
from webhook.k8s.types.meta import Object, OwnedMeta, View
from webhook.policies.common.required_facts import is_kubevirts, read_configuration
from webhook.policies.sizes import reasons
from webhook.policies.sizes.judgment import cannot_evaluate, cannot_read, is_from_webhook, judge
from webhook.policies.sizes.settings import SizeSettings
from webhook.policies.sizes.size import Size, SizedDomain

_PATH: Final = ("spec", "template", "spec", "domain")


class _VmiSpec(View, frozen=True):
    domain: SizedDomain | None = None


class _Template(View, frozen=True):
    spec: _VmiSpec | None = None


class _Matcher(View, frozen=True):
    """``spec.instancetype``: that it is there is all that counts. KubeVirt takes no size beside it."""


class _VmSpec(View, frozen=True):
    instancetype: _Matcher | None = None
    template: _Template | None = None


class SizedVm(Object, frozen=True):
    """A VirtualMachine, as far as it says its size."""

    metadata: OwnedMeta | None = None
    spec: _VmSpec | None = None

    @property
    def has_instancetype(self) -> bool:
        """Whether its size is from an instancetype."""
        return bool(self.spec and self.spec.instancetype is not None)

    @property
    def domain(self) -> SizedDomain | None:
        """``spec.domain`` of its template."""
        template = self.spec.template if self.spec else None
        return template.spec.domain if template and template.spec else None

    @property
    def is_of_a_pool(self) -> bool:
        """Whether a pool rewrites it by a template of a user's."""
        owner = self.meta.controller_owner()
        return owner is not None and (owner.kind, owner.group) == ("VirtualMachinePool", names.POOL_GROUP)


async def validate_vm(vm: SizedVm, request: Request[SizedVm], facts: Facts, settings: SizeSettings) -> Decision:
    """Deny a VM whose new size is not allowed in the namespace."""
    if vm.meta.deletion_timestamp:
        return allow(common.being_deleted("the VM"))
    if vm.has_instancetype:
        return allow(reasons.has_instancetype)
    try:
        size = Size.of(vm.domain)
    except InputError as error:
        return cannot_read(error, _PATH)
    if size is None:
        return allow(reasons.no_inline_size)
    old = request.old_object if request.operation == "UPDATE" else None
    if old is None:
        if is_from_webhook(vm, size, _PATH):
            return allow(reasons.written_by_a_webhook)
        return judge(size, None, _PATH, settings)
    decision = judge(size, _old_size(old), _PATH, settings)
    if decision.denial is None:
        return decision
    try:
        if await _writes_for_the_owner(vm, old, request, facts, settings):
            return allow(reasons.by_kubevirt)
    except Unreadable as error:
        return cannot_evaluate(error, settings)
    return decision


def _old_size(old: SizedVm) -> Size | None:
    """The size that a VM sets itself before an update; None: it had another's, or none."""
    try:
        return None if old.has_instancetype else Size.of(old.domain)
    except InputError:
        return None


async def _writes_for_the_owner(
    vm: SizedVm, old: SizedVm, request: Request[SizedVm], facts: Facts, settings: SizeSettings
) -> bool:
    """Whether KubeVirt writes a size that was decided before: of an instancetype that it expands, or of a snapshot.

    The VMs of a pool follow its template, which a user changes.

    Raises:
        Unreadable: where KubeVirt runs, or its configuration, is not known.
    """
    if not await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
        return False
    if not vm.is_of_a_pool:
        return True
    configuration = await read_configuration(facts)
    expands = configuration is not None and configuration.reference_policy != "reference"
    return expands and old.has_instancetype
