"""What objects of KubeVirt are checked against: definitions of a file, of a cluster, or those of a release."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from webhook.cluster.reader import SECONDS, listed
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import KubeVirtKey
from webhook.forecast.validation import Schemas, is_of_kubevirt, schemas_of
from webhook.k8s.client.api import READ_ERRORS, Forbidden, Transport, list_failure
from webhook.k8s.documents import objects_in
from webhook.k8s.types.meta import Unstructured
from webhook.k8s.yaml_documents import read_documents
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import NEWEST, Release, release_of
from webhook.settings.model import Settings


async def fetch_definitions(transport: Transport) -> list[dict[str, Any]]:
    """KubeVirt's definitions; an `InputError` where they cannot be read. All of a cluster can have 100 MB."""
    try:
        async with aclosing(listed(transport, DEFINITIONS.decoded_as(Unstructured), seconds=SECONDS)) as definitions:
            specs = [one.spec async for one in definitions if is_of_kubevirt(str((one.spec or {}).get("group") or ""))]
            return [{"spec": spec} for spec in specs]
    except READ_ERRORS as error:
        # A user without the permission to list them gets what the program knows; the line on standard error says so.
        if not isinstance(why := list_failure(error, DEFINITIONS, "", SECONDS), Forbidden):
            fix = "run the command again, or name a file of them with --crds"
            raise InputError(why.why, DEFINITIONS.plural, fix) from None
    return []


def find_schemas(release: Release, crds: Path | None, definitions: Sequence[dict[str, Any]], origin: str) -> Schemas:
    """What objects of KubeVirt are checked against: definitions, and for what they lack those of a release.

    Definitions of a file, ``crds``, come before those of the cluster, which are from ``origin``; an `InputError` where
    the file has none of KubeVirt.
    """
    if crds:
        origin = f"the CustomResourceDefinitions in {crds}"
        documents = (each.value for document in read_documents(crds) for each in objects_in(document))
        definitions = [each for each in documents if isinstance(each, dict) and each.get("kind") == DEFINITIONS.kind]
    if schemas := Schemas.of_definitions(definitions, origin, release):
        return schemas
    if crds:
        fix = "use for example the output of: kubectl get crd -o yaml"
        raise InputError("holds no CustomResourceDefinition of KubeVirt", str(crds), fix)
    return schemas_of(release)


def release_in(cluster: Cluster, settings: Settings) -> Release:
    """The release of KubeVirt whose rules apply in a cluster, as far as that is in memory; else the newest."""
    install = cluster.peek(KubeVirtKey())
    configuration = install.configuration if isinstance(install, KubeVirtInstall) else None
    if isinstance(configuration, ClusterConfig):
        return configuration.rules.release
    version = parse_version(settings.kubevirt.version or "")
    return release_of(version) if version else NEWEST
