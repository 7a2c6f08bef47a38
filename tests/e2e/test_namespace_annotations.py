"""The API server asks about namespaces whose annotations for a policy change, and about no others."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tests.annotations import MISTAKES

from .conftest import NewTenant, NewWebhook
from .support.kube import denial, denied, eventually
from .support.objects import obj
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, WebhookServer

NAMESPACES = "v1/namespaces"
POLICIES = [f"{DOMAIN}/{policy}" for policy in MISTAKES]
WRONG = {mistake.annotation: mistake.wrong for mistake in MISTAKES.values()}
RIGHT = {mistake.annotation: mistake.valid for mistake in MISTAKES.values()}
SIZES, GROUPS = f"{DOMAIN}/sizes", f"{DOMAIN}/groups"
LIMITS, RULES = MISTAKES["sizes"].annotation, MISTAKES["groups"].annotation


def of_namespaces(tenant: Tenant) -> list[str]:
    return [f"{each['endpoint'].split('/')[2]} {each['decision']}" for each in tenant.audit("Namespace")]


def called(server: WebhookServer, mode: str = "enforce") -> None:
    """Returns once the API server calls the server for namespaces of a mode."""
    labels = server.labels(mode, [SIZES])
    probe = obj("Namespace", f"probe-{server.name}", labels=labels, annotations={LIMITS: RIGHT[LIMITS]})

    def is_called() -> bool:
        server.access.admin.make(probe, dryRun="All")
        return any(line["object"]["name"] == probe["metadata"]["name"] for line in server.audit())

    eventually(is_called, what="the API server to ask about namespaces")


@pytest.fixture
def shop(new_tenant: NewTenant, webhook: WebhookServer) -> Tenant:
    called(webhook)
    return new_tenant(policies=POLICIES)


@pytest.mark.control("invalid-annotations")
def test_a_mistake_is_denied_with_its_place(shop: Tenant) -> None:
    admin = shop.owner
    for annotation, _, wrong, said in MISTAKES.values():
        change = {"metadata": {"annotations": {annotation: wrong}}}
        error = denied(lambda change=change: admin.patch(NAMESPACES, shop.namespace, change))  # type: ignore[misc]
        assert error.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert annotation in error.message
        assert said in error.message
    admin.patch(NAMESPACES, shop.namespace, {"metadata": {"annotations": RIGHT}})
    decided = of_namespaces(shop)
    assert decided[: len(MISTAKES)] == [f"{policy} denied" for policy in MISTAKES]
    assert sorted(decided[len(MISTAKES) :]) == sorted(f"{policy} allowed" for policy in MISTAKES)

    # Nothing else that is written of a namespace is sent.
    admin.patch(
        NAMESPACES, shop.namespace, {"metadata": {"annotations": {"example.com/team": "a"}, "labels": {"a": ""}}}
    )
    admin.patch(NAMESPACES, shop.namespace, {"metadata": {"annotations": {LIMITS: None}}})
    assert of_namespaces(shop) == decided

    new = obj("Namespace", f"{shop.namespace}-b", labels=shop.server.labels(policies=[GROUPS]), annotations=WRONG)
    assert RULES in denied(lambda: admin.make(new)).message


@pytest.mark.control("invalid-annotations")
def test_an_older_mistake_keeps_nobody_from_other_changes(new_tenant: NewTenant, webhook: WebhookServer) -> None:
    called(webhook)
    shop = new_tenant(mode=None, annotations=WRONG)
    admin = shop.owner
    assert LIMITS in denied(lambda: shop.label("enforce", SIZES)).message
    called(webhook, "warn")
    warned = admin.patch(NAMESPACES, shop.namespace, {"metadata": {"labels": {SIZES: "warn"}}})
    assert any("would deny" in each and LIMITS in each for each in warned.warnings)
    before = len(of_namespaces(shop))
    admin.patch(NAMESPACES, shop.namespace, {"metadata": {"annotations": {"example.com/team": "a"}}})
    assert len(of_namespaces(shop)) == before
    shop.annotate(size_limits=RIGHT[LIMITS])
    shop.label("enforce", SIZES)


def test_namespaces_that_are_excluded_are_never_sent(new_tenant: NewTenant, webhook: WebhookServer) -> None:
    called(webhook)
    admin, name = webhook.access.admin, "kube-public"
    labels = webhook.labels(policies=[SIZES])
    admin.patch(NAMESPACES, name, {"metadata": {"labels": labels, "annotations": {LIMITS: WRONG[LIMITS]}}})
    assert not Tenant(webhook, name).audit("Namespace")
    admin.patch(
        NAMESPACES, name, {"metadata": {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys([LIMITS])}}
    )


def test_without_a_server_everything_is_admitted(new_tenant: NewTenant, new_webhook: NewWebhook) -> None:
    server = new_webhook({"sizes": {"failurePolicy": "Fail"}})
    called(server)
    shop = new_tenant(server=server, policies=[SIZES])
    change = {"metadata": {"annotations": {LIMITS: WRONG[LIMITS]}}}
    assert denial(lambda: shop.owner.patch(NAMESPACES, shop.namespace, change))
    server.kill()
    shop.owner.patch(NAMESPACES, shop.namespace, change)
