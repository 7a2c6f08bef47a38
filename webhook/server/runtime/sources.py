"""Where a running server's facts come from, and what proves that an API server sends a review."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from webhook.cluster.source import Cluster
from webhook.facts import SchedulerHealth
from webhook.install.registration import RegistrationTarget, configurations
from webhook.server.part import ApiServer
from webhook.server.runtime.connections import connected
from webhook.server.runtime.options import Options, SettingsFollower
from webhook.server.senders import SenderVerifier
from webhook.server.tasks import keep_until
from webhook.settings.model import Settings


class Source(msgspec.Struct, frozen=True):
    """Where facts come from.

    Attributes:
        api_server: what parts may ask of the API server; None: facts come from files.
        start: begins to watch the cluster.
    """

    cluster: Cluster
    api_server: ApiServer | None = None
    start: Callable[[], None] = lambda: None


async def open_source(options: Options, settings: SettingsFollower, log: Any, ends: AsyncExitStack) -> Source:
    """The source of facts until the end, following the settings; an `InputError` where it is unusable."""
    if options.cluster_from:
        from webhook.cluster.files import FilesCluster

        files = FilesCluster.load(options.cluster_from, settings.current())
        settings.subscribers.append(files.use)
        log.info("cluster objects read from files", summary=files.summary())
        return Source(files)
    from webhook.cluster.live import LiveCluster
    from webhook.k8s.client.transport import connect

    def changed(name: str, old: SchedulerHealth, new: SchedulerHealth) -> None:
        level = log.info if new.state == "available" else log.warning
        level("scheduler's health changed", scheduler=name, was=old.state, now=new.state, why=new.why)

    transport = await connect(options.kubeconfig)
    log.info("cluster objects read from the API server", server=transport.server)
    live = LiveCluster(transport, settings.current(), on_health=changed)
    settings.subscribers.append(live.use)
    live.on_restore(lambda why: log.warning("etcd restored from an older copy; reading everything again", why=why))
    ends.push_async_callback(live.close)
    api_server = ApiServer(partial(connected, options.kubeconfig), live.report_nodes, live.answer, live.answer_later)
    return Source(live, api_server, live.start)


async def senders(options: Options, settings: Settings, log: Any, ends: AsyncExitStack) -> SenderVerifier | None:
    """What verifies the tokens of API servers, until the end; None where facts come from files.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    if options.cluster_from:
        return None
    service = settings.webhooks.service
    url = options.url or f"https://{service.name}.{service.namespace}.svc:{service.port}"
    target = RegistrationTarget(url=url, suffix=f"-{options.register_as}" if options.register else "")
    own = [(each["kind"], each["metadata"]["name"]) for each in configurations(settings, target)]
    verifier = SenderVerifier(url, own)
    event = "the keys of service account tokens cannot be read; keeping the previous ones"
    transport = await connected(options.kubeconfig, ends)
    follow = partial(verifier.follow, transport, lambda why: log.warning(event, why=why))
    keep_until(ends, follow, "internal error while reading the keys of service account tokens; retrying")
    return verifier
