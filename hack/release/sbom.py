"""Software bills of materials in CycloneDX: what a wheel installs, and what an image contains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from hack.release.image import Content

# A property of a package: what it requires, and what the image does not have, since nothing imports it.
LEFT_OUT: Final = "kubevirt-webhook:left-out"
_ENTRY: Final = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;\\]+)(?P<rest>(?:.*\n)(?:[ ]+.*\n)*)", re.MULTILINE
)


def of_wheel(lock: str, version: str, epoch: int) -> str:
    """The bill of a wheel with the dependencies that were locked and tested with it.

    Args:
        lock: the content of `requirements.lock`.
        version: the version of the wheel.
        epoch: the time of the release, in seconds since 1970.
    """
    root = _root(version, f"pkg:pypi/kubevirt-webhook@{version}")
    return _bill(root, list(_locked(lock)), epoch)


def of_image(content: Content, repository: str, version: str, epoch: int) -> str:
    """The bill of an image: its Python packages, and its libraries and interpreters by their hashes.

    Args:
        content: what the image contains.
        repository: where it is.
        version: the version of the release.
        epoch: the time of the release, in seconds since 1970.
    """
    root = _root(version, f"{repository}@{content.digest}", ComponentType.CONTAINER)
    parts = [_package(name, found) for name, found in sorted(content.packages.items())]
    for part in parts:
        # Else a reader who runs `pip check` takes the image for broken.
        part.properties = [Property(name=LEFT_OUT, value=name) for name in content.left_out.get(part.name, ())]
    for path, digest in sorted(content.libraries.items()):
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
        parts.append(Component(name=path, type=ComponentType.FILE, bom_ref=path, hashes=hashes))
    return _bill(root, parts, epoch)


def _root(version: str, reference: str, kind: ComponentType = ComponentType.APPLICATION) -> Component:
    licenses = [DisjunctiveLicense(id="Apache-2.0")]
    return Component(name="kubevirt-webhook", version=version, type=kind, bom_ref=reference, licenses=licenses)


def _package(name: str, version: str, hashes: Iterable[HashType] = ()) -> Component:
    url = PackageURL("pypi", None, name, version)
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url), hashes=list(hashes)
    )


def _locked(lock: str) -> Iterator[Component]:
    for match in _ENTRY.finditer(lock):
        digests = sorted(set(re.findall(r"sha256:([0-9a-f]{64})", match["rest"])))
        yield _package(
            match["name"],
            match["version"],
            # Of each of its files: wheels for other platforms too.
            [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests],
        )


def _bill(root: Component, parts: list[Component], epoch: int) -> str:
    bom = Bom(components=parts)
    bom.metadata.component = root
    # Else they are those of the moment, and no two bills are the same.
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.serial_number = uuid5(NAMESPACE_URL, str(root.bom_ref))
    bom.register_dependency(root, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
