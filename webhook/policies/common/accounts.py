"""The sender of a request: KubeVirt itself, or a user whose permissions can be looked up."""

from __future__ import annotations

import msgspec

from webhook.admission.wire import UserInfo
from webhook.facts import AccessKey, Facts, KubeVirtKey
from webhook.kubevirt.launcher import ACCOUNTS, account
from webhook.policies.common.required_facts import read


def is_kubevirts(user: UserInfo, name: str, facts: Facts, namespace: str) -> bool | None:
    """Whether a request comes from one of KubeVirt's accounts; None where the cluster has no KubeVirt.

    Args:
        user: the request's ``userInfo``.
        name: the name of the service account, for example ``kubevirt-controller``.
        facts: the review's facts.
        namespace: the namespace where KubeVirt runs; empty: wherever a KubeVirt object is.

    Raises:
        Unreadable: where KubeVirt runs is not known.
    """
    if namespace:
        return user.username == account(namespace, name)
    install = read(facts, KubeVirtKey(), "where KubeVirt runs")
    if install is None or not install.namespaces:
        return None
    place, _, account_name = user.username.removeprefix(ACCOUNTS).partition(":")
    return user.username.startswith(ACCOUNTS) and account_name == name and place in install.namespaces


def access_to_path(user: UserInfo, verb: str, path: str) -> AccessKey:
    """The question whether RBAC lets a user do something with a path that is not a resource's, such as ``/metrics``.

    Args:
        user: the user, as the API server authenticated it.
        verb: the verb as RBAC names it, for example ``get``.
        path: the absolute path of the URL.
    """
    return msgspec.structs.replace(access(user, verb, "", ""), path=path)


def access(user: UserInfo, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> AccessKey:
    """The key of the fact whether RBAC lets a user do something; arguments as in `AccessKey`."""
    extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
    return AccessKey(user.username, tuple(user.groups or ()), user.uid, extra, verb, group, resource, namespace, name)
