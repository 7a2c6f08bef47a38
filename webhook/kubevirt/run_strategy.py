"""What KubeVirt does with a VM whose guest has ended, by its run strategy (virt-controller, ``syncRunStrategy``)."""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Condition, Object, View

ALWAYS: Final = "Always"
RERUN_ON_FAILURE: Final = "RerunOnFailure"
HALTED: Final = "Halted"
_RESTART_REQUIRED: Final = "RestartRequired"


class _StartedSpec(View, frozen=True):
    running: bool | None = None
    run_strategy: str | None = None


class _RunnableSpec(_StartedSpec, frozen=True):
    # Plain JSON: of most VMs nothing is read of it.
    template: dict[str, Any] | None = None


class _RunnableStatus(View, frozen=True):
    conditions: list[Condition | None] | None = None


class StartedVm(Object, frozen=True):
    """A VirtualMachine (kubevirt.io/v1), by whether KubeVirt starts it again."""

    spec: _StartedSpec | None = None
    status: _RunnableStatus | None = None

    @property
    def run_strategy(self) -> str:
        """Its run strategy; ``running`` says the same in an older way."""
        spec = self.spec or _StartedSpec()
        return spec.run_strategy or (ALWAYS if spec.running else HALTED)

    @property
    def restarts_after_failure(self) -> bool:
        """Whether KubeVirt starts it again once its VMI has failed, as it does where the node is lost."""
        return self.run_strategy in (ALWAYS, RERUN_ON_FAILURE)

    @property
    def restarts_after_shutdown(self) -> bool:
        """Whether KubeVirt starts it again once its guest has shut down, as it does where its pod is deleted."""
        return self.run_strategy == ALWAYS


class RunnableVm(StartedVm, frozen=True):
    """A VirtualMachine, by whether KubeVirt starts it again, and with what."""

    spec: _RunnableSpec | None = None

    @property
    def requires_restart(self) -> bool:
        """Whether its template has changes that its VMI gets by a restart alone."""
        conditions = (self.status.conditions if self.status else None) or ()
        return any(each.type == _RESTART_REQUIRED and each.status == "True" for each in conditions if each)

    @property
    def volumes(self) -> frozenset[str]:
        """The names of the volumes in its template."""
        template = (self.spec.template if self.spec else None) or {}
        listed = (template.get("spec") or {}).get("volumes") or ()
        return frozenset(str(each.get("name")) for each in listed if isinstance(each, dict))


STARTED_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, StartedVm)
RUNNABLE_VMS: Final = STARTED_VMS.decoded_as(RunnableVm)
