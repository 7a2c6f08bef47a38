"""``--kubevirt-version``: the release of KubeVirt whose rules apply, instead of the cluster's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from webhook.errors import InputError, quote
from webhook.kubevirt.releases.release import Release, release_of
from webhook.kubevirt.releases.version import OLDEST, parse_version

OPTION: Final = "--kubevirt-version"


def parse_release(text: str | None) -> Release | None:
    """The release that the option names; None without the option.

    Raises:
        InputError: the text is not a version, or kubevirt-webhook does not have the rules of that release.
    """
    if text is None:
        return None
    version = parse_version(text)
    if version is None:
        raise InputError(f"{quote(text)} is not a valid KubeVirt version", OPTION, "use for example 1.8 or v1.8.4")
    release = release_of(version)
    if not release.is_supported:
        raise InputError(f"KubeVirt {release} is not supported", OPTION, f"use {OLDEST} or a newer release")
    return release


kubevirt_version: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = click.option(
    OPTION,
    metavar="VERSION",
    help="KubeVirt release whose rules apply, for example 1.8.  [default: that of the KubeVirt object]",
)
