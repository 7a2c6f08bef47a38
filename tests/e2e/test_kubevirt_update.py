"""KubeVirt's operator updates it under a running server: the target, the definitions, the components, the version."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from webhook.server.runtime.logs import ServerEvent

from .conftest import NewWebhook, OwnPlane
from .support.kube import eventually
from .support.objects import CRDS, crds, install_crds
from .support.plane import ControlPlane
from .support.shipped import definitions
from .support.tenant import Tenant
from .support.updates_under_load import (
    Stored,
    have_answers,
    interface_of,
    load,
    offer,
    put_interface,
    put_release,
    stored,
    with_steps,
)
from .support.webhook_server import WebhookServer
from .support.workloads import PREFERENCES

METRIC = "kubevirt_webhook_kubevirt_release"
FORMER, NEXT = "1.8.4", "1.9.0"
# KubeVirt knows it since 1.9.
WISH = {"spec": {"devices": {"preferredVideoType": "vga"}}}


@pytest.fixture
def plane(own_plane: OwnPlane, tmp_path: Path) -> ControlPlane:
    """A control plane with the definitions of the former release."""
    return own_plane(definitions=crds(definitions(FORMER, tmp_path / "former.json")))


def define(plane: ControlPlane, bundle: Path) -> None:
    """Puts the definitions of another release in the place of the present ones, and adds those that are new."""
    for definition in crds(bundle):
        name, spec = definition["metadata"]["name"], definition["spec"]
        if any(found["metadata"]["name"] == name for found in plane.admin.list(CRDS)):
            plane.admin.patch(CRDS, name, {"spec": {"versions": spec["versions"]}})
    install_crds(plane.admin, crds(bundle))


def answer_of(release: str, new_webhook: NewWebhook) -> Stored:
    """The answer of a server that knows one release alone, to owners who wish for what only the next one knows."""
    server = new_webhook({"schedulers": {}, "kubevirt": {"version": release}})
    return stored(wishing(server), server.access.admin)[1]


def wishing(server: WebhookServer) -> Tenant:
    """A namespace of a server whose owner wishes so."""
    assert server.validates
    tenant = offer(server)
    wish(tenant)
    return tenant


def wish(tenant: Tenant) -> None:
    tenant.owner.patch(PREFERENCES, "linux", WISH, tenant.namespace)


def test_the_former_release_counts_until_the_update_is_done_and_then_the_next_one(
    plane: ControlPlane, new_webhook: NewWebhook, tmp_path: Path
) -> None:
    """Its own rules and fields, though the cluster's definitions and its owners' preferences have the next one's."""
    later = definitions(NEXT, tmp_path / "next.json")
    server = new_webhook({"schedulers": {}})
    assert server.validates
    put_release(plane, f"v{FORMER}")
    put_interface(plane, 0)
    tenant = offer(server)
    eventually(lambda: server.metric(METRIC, version=FORMER, fields="definitions") == 1, what="the former release")
    late: list[Tenant] = []
    latest: list[Stored] = []

    def start_another() -> None:
        late.append(wishing(new_webhook({"schedulers": {}})))

    steps: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: put_release(plane, f"v{FORMER}", f"v{NEXT}"),
        lambda: define(plane, later),
        lambda: wish(tenant),
        start_another,
        lambda: put_release(plane, f"v{NEXT}"),
    )
    eventually(lambda: stored(tenant, tenant.owner)[0] == interface_of(0), what="the first step to be known")

    with load(tenant) as reviewers:
        for number, step in enumerate(steps):
            step()
            put_interface(plane, number)
            eventually(partial(have_answers, reviewers, number), what=f"answers of step {number}")
            if late:
                latest.append(stored(late[0], plane.admin)[1])

    former, after = (answer_of(release, new_webhook) for release in (FORMER, NEXT))
    # One that starts amid the update reads the next release's definitions at once.
    assert latest[0] == former
    eventually(lambda: stored(late[0], plane.admin)[1] == after, what="the other server to follow")
    assert "vga" in after.vmi
    assert "vga" not in former.vmi
    last = len(steps) - 1
    for answers in reviewers:
        numbered = list(with_steps(answers))
        assert numbered[-1][0] == last
        for number, answer in numbered:
            allowed = {former.vmi} if number < last - 1 else {former.vmi, after.vmi} if number < last else {after.vmi}
            assert answer.vmi in allowed, f"at step {number}"
            assert answer.vm == former.vm == after.vm
    assert len(server.events(ServerEvent.API_SERVER_READ)) == 1, "it was restarted"
    assert server.metric(METRIC, version=NEXT, fields="definitions") == 1
