from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import builders
from tests.builders import Json, changed
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer
from webhook import names
from webhook.admission.decision import Decision, Denial, Reason
from webhook.settings.model import DriftSettings, Settings

ServedApi = tuple[FakeApiServer, Any]


@pytest.fixture
async def api(apiservers: ApiServers) -> AsyncIterator[ServedApi]:
    """A fake API server, and a connection to it."""
    server = await apiservers.start()
    transport = await apiservers.connect(server)
    yield server, transport
    await transport.close()


# A decision that becomes an Event.
DENIED = Decision((Reason("no", "it cannot be"),), denial=Denial(403, "it cannot be [node-a]"))
NAMESPACE_LABELS = {names.policy_label(names.SCHEDULING): "enforce", names.policy_label(names.INSTANCETYPES): "enforce"}


def stored(obj: Json, name: str = "web01", **more: Any) -> Json:
    """An object with what the API server writes into its metadata; keywords go there too."""
    metadata = {**obj["metadata"], "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-21T15:00:00Z"}
    metadata.pop("generateName", None)
    return {**obj, "metadata": metadata | more}


def settings(**changes: Any) -> Settings:
    looked = DriftSettings(every_minutes=10)
    return changed(builders.settings(), drift_scan=looked, **changes)
