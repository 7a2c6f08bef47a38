"""Facts without which a policy cannot decide, and who sent the request.

Beside yes and no there is a third answer to a question about the cluster: it is not known now.
"""

from __future__ import annotations

from typing import Final, TypeVar

from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, Unreadable
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.launcher import ACCOUNTS, account

T = TypeVar("T")

_CONFIGURATION: Final = "KubeVirt's configuration"


async def read(facts: Facts, key: Key[T], noun: str) -> T | None:
    """The fact, for the clause of an error a ``noun`` phrase; None where the API server said 404.

    Raises:
        Unreadable: it could not be read.
    """
    fact = await facts.get(key)
    return require(fact, noun)


def require(fact: T | None | Unavailable, noun: str) -> T | None:
    """A fact that has been read, as `read` returns it.

    Raises:
        Unreadable: it could not be read.
    """
    if isinstance(fact, Unavailable):
        raise Unreadable(f"{noun} cannot be read: {fact.why}")
    return fact


async def read_configuration(facts: Facts) -> ClusterConfig | None:
    """KubeVirt's configuration; None where the cluster has no KubeVirt.

    Raises:
        Unreadable: the KubeVirt object could not be read, or its configuration is invalid.
    """
    install = await read(facts, KubeVirtKey(), _CONFIGURATION)
    return require(install.configuration if install else None, _CONFIGURATION)


async def is_kubevirts(user: UserInfo, name: str, facts: Facts, namespace: str) -> bool | None:
    """Whether a request comes from one of KubeVirt's accounts; None where the cluster has no KubeVirt.

    The name is the service account's, for example ``kubevirt-controller``; the namespace is where KubeVirt runs, or
    empty: wherever a KubeVirt object is.

    Raises:
        Unreadable: where KubeVirt runs is not known.
    """
    if namespace:
        return user.username == account(namespace, name)
    install = await read(facts, KubeVirtKey(), "where KubeVirt runs")
    if install is None or not install.namespaces:
        return None
    place, _, account_name = user.username.removeprefix(ACCOUNTS).partition(":")
    return user.username.startswith(ACCOUNTS) and account_name == name and place in install.namespaces
