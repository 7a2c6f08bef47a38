"""Checks that the service account has the permissions of the manifests, and that admission policies restrict it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from webhook.cluster.access import is_allowed
from webhook.cluster.reader import SECONDS
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import NAME, Installation
from webhook.errors import Unavailable
from webhook.facts import AccessKey
from webhook.install import plan
from webhook.install.plan import shipped
from webhook.text import pluralize

CHECK: Final = "rights"
_CERTIFICATES: Final = "kubevirt-webhook-certificates"
_AT_ONCE: Final = 8


async def check(installation: Installation) -> list[Finding]:
    """Ask the API server about each permission, and compare the admission policies with those of the manifests."""
    return [*await _check_permissions(installation), *await _check_policies(installation)]


async def _check_policies(installation: Installation) -> list[Finding]:
    if installation.url:
        return []  # The server runs outside the cluster, without manifests and with another account.
    lacking = await installation.lacking_policies()
    subject = "admission policies"
    if isinstance(lacking, Unavailable):
        return [unreadable(CHECK, subject, lacking)]
    if lacking:
        what = (
            f"missing or changed, so that labels of namespaces and what a stolen token can write are not restricted: "
            f"{', '.join(lacking)}"
        )
        todo = 'run "kubevirt-webhook install", or apply manifests/base/validation.yaml and manifests/base/account.yaml'
        return [Finding(CHECK, "policies-missing", subject, "warning", what, todo)]
    what = "labels of namespaces, and what the service account can write, are restricted as in the manifests"
    return [Finding(CHECK, "policies-installed", subject, "ok", what)]


async def _check_permissions(installation: Installation) -> list[Finding]:
    needed = list(_required_access(installation, managed=await installation.manages_certificates()))
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(key: AccessKey) -> bool | Unavailable:
        async with limit:
            return await is_allowed(installation.reader.api, key, SECONDS)

    answers = await asyncio.gather(*map(ask, needed))
    subject = f"ServiceAccount {installation.namespace}/{NAME}"
    for answer in answers:
        if isinstance(answer, Unavailable):
            return [unreadable(CHECK, subject, answer)]
    if missing := [_describe_access(key) for key, answer in zip(needed, answers, strict=True) if not answer]:
        todo = 'run "kubevirt-webhook install", or apply manifests/base/rbac.yaml'
        what = f"lacks {len(missing)} of {pluralize(len(needed), 'permission')}: {abbreviate(missing)}"
        return [Finding(CHECK, "permissions-missing", subject, "failure", what, todo)]
    what = f"has the {pluralize(len(needed), 'permission')} that it needs"
    return [Finding(CHECK, "permissions-granted", subject, "ok", what)]


def _required_access(installation: Installation, *, managed: bool) -> Iterator[AccessKey]:
    """The permissions of the service account in the roles of the manifests.

    Args:
        installation: the installation to check.
        managed: whether certificates are managed; otherwise only reading the configurations is needed for them.
    """
    for role in _roles(installation):
        name, rules = role["metadata"]["name"], role["rules"]
        if name == _CERTIFICATES and not managed:
            if role["kind"] == "Role":
                continue
            rules = [{**rule, "verbs": ["get"]} for rule in rules]
        for rule in rules:
            for group, resource, verb, resource_name in product(
                rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", ("",))
            ):
                yield _key(installation.namespace, verb, group, resource, role["kind"] == "Role", resource_name)


def _key(namespace: str, verb: str, group: str, resource: str, inside: bool, name: str) -> AccessKey:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    account = f"system:serviceaccount:{namespace}:{NAME}"
    return AccessKey(account, groups, "", (), verb, group, resource, namespace if inside else "", name)


def _roles(installation: Installation) -> Iterator[dict[str, Any]]:
    usual = shipped(installation.manifests / "rendered" / "kubernetes.yaml")
    optional, _ = plan.rights(installation.manifests, installation.settings)
    for manifest in (*usual, *optional):
        if manifest["kind"] in ("ClusterRole", "Role"):
            yield manifest


def _describe_access(key: AccessKey) -> str:
    text = f"{key.verb} {key.resource}" + (f".{key.group}" if key.group else "")
    return f"{text} {key.name}" if key.name else text
