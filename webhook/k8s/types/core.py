"""Kinds of core/v1."""

from __future__ import annotations

from webhook.k8s.quantity import Nanos, ResourceList, read_resource_list
from webhook.k8s.views import View


class ResourceRequirements(View, frozen=True):
    """A container's, a pod's or a guest's. Quantities stay as they are written."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class Container(View, frozen=True):
    """One of the containers of a Pod (core/v1 Container), by what it requests."""

    name: str | None = None
    restart_policy: str | None = None
    resources: ResourceRequirements | None = None

    @property
    def requests(self) -> Nanos:
        """What it requests, without what is not a quantity."""
        return read_resource_list((self.resources.requests if self.resources else None) or {})
