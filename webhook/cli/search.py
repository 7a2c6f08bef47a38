"""Looks up objects for KubeVirt's rules: first in the files of a command, then in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from webhook.cli import given
from webhook.cluster.directory import describe_wrong_type
from webhook.cluster.objects import Objects
from webhook.errors import InputError, Unavailable
from webhook.k8s.yaml_builder import format_path
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.definitions import DEFINITIONS, Definition, fields_of
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.install import find_in_use
from webhook.kubevirt.lookup import Get
from webhook.kubevirt.releases.definitions import Definitions
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.views import KubeVirt

T = TypeVar("T")


class _Needed(Exception):  # noqa: N818 - never leaves this module
    """An object that has not been read yet."""

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(kind, namespace, name)
        self.key = (kind, namespace, name)


class Search:
    """Looks up objects, first in the files of a command, then in the source.

    The rules are plain functions that cannot wait: where they need an unread object, it is read and they run again.

    Args:
        found: the objects in the files.
        source: the source of all others; None: they do not exist.
    """

    def __init__(self, found: given.GivenObjects, source: Objects | None) -> None:
        self._known: dict[tuple[str, str, str], Json | None] = dict(found.others)
        self._source = source

    async def answer(self, ask: Callable[[Get], T]) -> T:
        """The result of a function, once all objects that it needs have been read.

        Raises:
            InputError: an object cannot be read, or the function raises it.
        """
        while True:
            try:
                return ask(self._get)
            except _Needed as needed:
                self._known[needed.key] = await self._read(*needed.key)

    def _get(self, kind: str, namespace: str, name: str) -> Json | None:
        key = (kind, namespace, name)
        if key not in self._known:
            if self._source is None:
                return None
            raise _Needed(*key)
        return self._known[key]

    async def _read(self, kind: str, namespace: str, name: str) -> Json | None:
        assert self._source
        read = await self._source.get(kind, namespace, name)
        if isinstance(read, Unavailable):
            place = f"{namespace}/{name}" if namespace else name
            raise InputError(f"cannot be read: {read.why}", f"{kind} {place}", "add it to the file")
        return read


async def configuration_of(
    found: given.GivenObjects, source: Objects | None, release: Release | None = None
) -> tuple[ClusterConfig, str]:
    """KubeVirt's configuration, and a clause that names its source.

    Args:
        found: the objects in the files, among which may be a KubeVirt object.
        source: the cluster whose KubeVirt object counts where the files have none; None: KubeVirt's built-in settings
            count.
        release: whose rules apply, with the fields that its tables list, instead of the release of the KubeVirt object.

    Raises:
        InputError: the KubeVirt object cannot be read, or is not valid.
    """
    installs = [_view(obj, KubeVirt) for (kind, _, _), obj in found.others.items() if kind == "KubeVirt"]
    if not installs and source:
        read = await source.kubevirts()
        if isinstance(read, Unavailable):
            raise InputError(f"cannot be read: {read.why}", "KubeVirt", "add the KubeVirt object to the file")
        installs = [*read]
    kubevirt = find_in_use(installs)
    if kubevirt is None:
        defaults = ClusterConfig.of(None, rules=rules_of(release)) if release else DEFAULTS
        return defaults, "KubeVirt's defaults"
    name = f"KubeVirt {kubevirt.meta.namespace or ''}/{kubevirt.meta.name or ''}"
    definitions = None if release else await _definitions(found, source)
    try:
        configuration = ClusterConfig.of_kubevirt(kubevirt, release, definitions)
    except InputError as error:
        raise InputError(error.what, f"{name}: {error.where}", error.fix) from None
    if not kubevirt.is_in_use:
        return configuration, f"KubeVirt's defaults; {name} has no status.phase, so KubeVirt does not use it yet"
    return configuration, name


async def _definitions(found: given.GivenObjects, source: Objects | None) -> Definitions | None:
    own = fields_of(_view(obj, Definition) for (kind, _, _), obj in found.others.items() if kind == DEFINITIONS.kind)
    return own if own or not source else await source.definitions()


def _view(obj: Json, view: type[T]) -> T:
    try:
        return msgspec.convert(obj, view)
    except msgspec.ValidationError as error:
        path, what, fix = describe_wrong_type(obj, error)
        raise InputError(what, f"{obj['kind']}: {format_path(path)}", fix) from error
