"""``--kubevirt-version``: the release of KubeVirt whose rules count, in place of the cluster's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from webhook.errors import InputError, quote
from webhook.releases.release import Release, release_of
from webhook.releases.version import OLDEST, parse_version

OPTION: Final = "--kubevirt-version"


def parse_release(text: str | None) -> Release | None:
    """The release that the option names; None where it isn't given.

    Raises:
        InputError: it is not a version, or of a release whose rules are not known.
    """
    if text is None:
        return None
    version = parse_version(text)
    if version is None:
        raise InputError(f"{quote(text)} is not a version of KubeVirt", OPTION, "write for example 1.8 or v1.8.4")
    release = release_of(version)
    if not release.is_supported:
        raise InputError(f"the rules of KubeVirt {release} are not known", OPTION, f"name {OLDEST} or a newer release")
    return release


kubevirt_version: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = click.option(
    OPTION, metavar="VERSION", help="Whose rules count, for example 1.8; default: what the KubeVirt object says."
)
