"""How a release was made, as an in-toto statement with a predicate of SLSA."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hack.release.image import ReleaseImage


def checksums(files: Mapping[str, bytes]) -> str:
    """A file for `sha256sum --check`."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))


def statement(
    files: Mapping[str, bytes], image: ReleaseImage | None, version: str, source: tuple[str, str], builder: str
) -> str:
    """The statement about all files of a release; it is signed as a whole.

    Args:
        files: the files by name.
        image: the image of the release; None: there is none.
        version: the version of the release.
        source: the URI of the repository, and the commit.
        builder: the URI of what made the release.
    """
    subjects: list[dict[str, Any]] = [
        {"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}} for name, data in sorted(files.items())
    ]
    parameters = {"version": version}
    if image is not None:
        subjects.append({"name": image.repository, "digest": {"sha256": image.digest.removeprefix("sha256:")}})
        parameters["image"] = str(image)
    uri, commit = source
    content = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://kubevirt-webhook.github.io/release/v1",
                "externalParameters": parameters,
                "resolvedDependencies": [{"uri": uri, "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
    return json.dumps(content, indent=2) + "\n"
