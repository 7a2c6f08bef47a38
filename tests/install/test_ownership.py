from __future__ import annotations

from typing import Any

import pytest

from tests.install.memory import InstallMemory, planned
from webhook.errors import InputError
from webhook.install import plan
from webhook.install.ownership import rename_manager, transfer, transfers

REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
IMAGE: dict[str, Any] = {"f:spec": {"f:template": {"k:{}": {"f:image": {}}}}}
DEPLOYMENT = planned().deployment


def entry(manager: str, fields: dict[str, Any], operation: str = "Apply", **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields, **more}


def test_fields_of_both_are_united() -> None:
    others = [entry("certificates", {"f:x": {}}), entry("old", {"f:status": {}}, "Update", subresource="status")]

    made = rename_manager([entry("new", REPLICAS), *others, entry("old", IMAGE)], "old", "new")

    united = {"f:spec": {"f:replicas": {}, "f:template": IMAGE["f:spec"]["f:template"]}}
    assert made == [*others, entry("new", united)]


def test_helm_does_not_apply_and_what_the_former_tool_does_not_own_stays() -> None:
    assert rename_manager([entry("old", IMAGE)], "old", "helm") == [entry("helm", IMAGE, "Update")]
    assert rename_manager([entry("helm", IMAGE, "Update")], "helm", "new") == [entry("new", IMAGE)]
    assert rename_manager([entry("new", IMAGE)], "old", "new") is None


@pytest.mark.control("fields-taken-over")
async def test_only_the_version_that_was_read_is_changed() -> None:
    api = InstallMemory()
    metadata = {**DEPLOYMENT["metadata"], "managedFields": [entry("old", IMAGE)]}
    api.put(plan.path(DEPLOYMENT), {**DEPLOYMENT, "metadata": metadata})

    (found,) = await transfers(api, planned().manifests, "old", "new")
    await transfer(api, found)

    assert api.objects[found.path]["metadata"]["managedFields"] == [entry("new", IMAGE)]
    assert await transfers(api, planned().manifests, "old", "new") == []
    with pytest.raises(InputError, match="run the command again"):
        await transfer(api, found)


@pytest.mark.parametrize(
    ("answer", "part"),
    [((403, {"message": "no"}), "get and patch"), ((500, b"?"), "status 500: \\?"), (None, "no answer")],
)
async def test_refusals_are_one_sentence(answer: Any, part: str) -> None:
    api = InstallMemory()
    api.answers["GET", plan.path(DEPLOYMENT)] = answer
    with pytest.raises(InputError, match=part):
        await transfers(api, [DEPLOYMENT], "old", "new")
