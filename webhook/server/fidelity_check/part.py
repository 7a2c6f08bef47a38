"""The fidelity check as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, cast

from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, KubeVirtKey
from webhook.install import components
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.server.ops import StateMetric
from webhook.server.part import Contribution, Part, ServerHandle, has_api_server
from webhook.server.tasks import keep_until

_COMPARED: Final = StateMetric(
    "kubevirt_webhook_fidelity_checked_total",
    "Running VMs compared by the fidelity check, by result.",
    dict,
    ("result",),
)
_DIFFERING: Final = StateMetric(
    "kubevirt_webhook_fidelity_differences_total", "Fields that differed in the fidelity check.", dict
)
_FAILED: Final = StateMetric(
    "kubevirt_webhook_fidelity_checks_failed_total", "Rounds of the fidelity check that failed.", dict
)


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.fidelity_check.check import FidelityCheck

    assert server.api_server
    settings = server.settings
    async with AsyncExitStack() as ends:
        api = await server.api_server.connect(ends)
        check = FidelityCheck(
            api,
            lambda: _configuration(server.cluster),
            lambda: settings().of(InstancetypeSettings).fidelity_check,
            server.audit,
        )
        keep_until(ends, check.run, "FidelityCheck: internal error; retrying")
        yield Contribution(
            metrics=(
                _COMPARED.reading(lambda: check.checked),
                _DIFFERING.reading(lambda: check.differing),
                _FAILED.reading(lambda: check.failed),
            )
        )


def _configuration(cluster: Cluster) -> ClusterConfig | Unavailable | None:
    answer = cluster.peek(KubeVirtKey())
    if answer is NOT_READ:
        return Unavailable("the watch of kubevirts is too old")
    install = cast("KubeVirtInstall | Unavailable | None", answer)
    return install if install is None or isinstance(install, Unavailable) else install.configuration


_METRICS: Final = (_COMPARED, _DIFFERING, _FAILED)
FIDELITY_CHECK: Final = Part("fidelity check", has_api_server, _running, _METRICS, (components.FIDELITY,))
