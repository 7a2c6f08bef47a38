"""The base of a policy's section of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from webhook.settings.fields import Derived, derived
from webhook.settings.schedulers import SchedulerSettings
from webhook.settings.section import Section

FailurePolicy = Literal["Ignore", "Fail"]


class PolicySettings(Section):
    """What every policy's section has."""

    # Whether namespaces without the policy's label count as ``enforce``.
    cluster_wide: bool = False
    # Where KubeVirt runs; empty: wherever a KubeVirt object is.
    kubevirt_namespace: Derived[str] = derived("")

    @property
    def fails_closed(self) -> bool:
        """Whether requests are denied while they cannot be evaluated; never by a policy without that setting."""
        return False

    @property
    def watched_schedulers(self) -> Mapping[str, SchedulerSettings]:
        """The schedulers, by name, whose health the policy asks for; most policies ask for none."""
        return {}

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section as a namespace's annotations change it; most policies read none."""
        return self

    def checked(self, schedulers: Mapping[str, SchedulerSettings]) -> Self:
        """The section of a file that declares these schedulers, for the policies that name one; or a `mistake`."""
        return self

    def completed(self, kubevirt_namespace: str, schedulers: Mapping[str, SchedulerSettings]) -> Self:
        """The section with what it takes from other sections; most policies need no schedulers."""
        return self.model_copy(update={"kubevirt_namespace": kubevirt_namespace})
