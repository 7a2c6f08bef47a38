"""Which requests KubeVirt itself has sent."""

from __future__ import annotations

from webhook.admission.wire import UserInfo
from webhook.facts import Facts, KubeVirtKey
from webhook.kubevirt.launcher import account
from webhook.policies.unreadable import read


def is_kubevirts(user: UserInfo, name: str, facts: Facts, namespace: str) -> bool | None:
    """Whether a request comes from one of KubeVirt's accounts; None where the cluster has no KubeVirt.

    Args:
        name: of the service account.
        namespace: where KubeVirt runs; empty: wherever a KubeVirt object is.

    Raises:
        Unreadable: where KubeVirt runs is not known.
    """
    if namespace:
        return user.username == account(namespace, name)
    install = read(facts, KubeVirtKey(), "where KubeVirt runs")
    if install is None:
        return None
    return user.username in {account(place, name) for place in install.namespaces}
