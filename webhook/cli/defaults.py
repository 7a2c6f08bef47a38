"""The settings that apply where a command names no file: those that are installed in its cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from webhook.cli import write
from webhook.cli.inputs import connected
from webhook.cli.options import Source
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import FileReader, ObjectReader, Reader
from webhook.cluster.selection import NoAnswerError, open_cluster
from webhook.cluster.source import Cluster
from webhook.errors import FileGap, InputError, Unavailable
from webhook.install.stored_settings import read_stored_settings
from webhook.k8s.client.api import Forbidden
from webhook.settings.model import Settings
from webhook.settings_file import default_settings, load, parse

_FIX: Final = "name a settings file with --config FILE"


class AppliedSettings(NamedTuple):
    """Settings, and a clause that says where they come from."""

    settings: Settings
    origin: str

    @property
    def gap(self) -> str:
        """Why those that are installed are not known, a clause; empty: they are, or nothing is installed."""
        return self.settings.gap


async def settings_from(config_file: Path | None, reader: ObjectReader) -> AppliedSettings:
    """The settings of a file, else those that are installed where a reader looks, else the built-in defaults.

    Raises:
        InputError: they are not valid.
        NoAnswerError: the cluster does not answer.
    """
    if config_file:
        return AppliedSettings(load(config_file), str(config_file))
    stored = await read_stored_settings(reader)
    if isinstance(stored.text, str):
        try:
            return AppliedSettings(parse(stored.text.encode(errors="replace"), stored.subject), stored.subject)
        except InputError as error:
            raise InputError(error.what, error.where, "; ".join(filter(None, (error.fix, _FIX)))) from None
    gap = ""
    if isinstance(stored.text, Forbidden):
        gap = why = f"{stored.subject} cannot be read: {stored.text.why}"
    elif isinstance(stored.text, Unavailable) and not isinstance(stored.text, FileGap):
        raise NoAnswerError(f"the settings cannot be read: {stored.text.why}", stored.subject, "check the kubeconfig")
    else:
        why = f"no {stored.subject} in the {'cluster' if isinstance(reader, Reader) else 'files'}"
    return AppliedSettings(default_settings().standing_in(gap), f"the built-in defaults ({why})")


async def settings_beside(cluster: Cluster, config_file: Path | None, source: Source) -> AppliedSettings:
    """The settings for a command that has opened its source, which uses them if it is files; as `settings_from`."""
    if isinstance(cluster, FilesCluster):
        applied = await settings_from(config_file, FileReader(cluster))
        cluster.use(applied.settings)
        return applied
    async with connected(source.kubeconfig) as transport:
        return await settings_from(config_file, Reader(transport))


@asynccontextmanager
async def open_with_settings(
    source: Source, config_file: Path | None, release: str = ""
) -> AsyncIterator[tuple[Cluster, AppliedSettings]]:
    """A cluster that a command reads, and the settings that apply to it; raises as `open_cluster` and `settings_from`.

    ``release`` of KubeVirt replaces the one that the settings name for a running cluster, if it is given.
    """
    if source.cluster_from:
        async with source.open() as cluster:
            yield cluster, await settings_beside(cluster, config_file, source)
        return
    if config_file:
        applied = AppliedSettings(load(config_file), str(config_file))
    else:
        async with connected(source.kubeconfig) as transport:
            applied = await settings_from(None, Reader(transport))
    if release:
        applied = applied._replace(settings=applied.settings.with_kubevirt_version(release))
    async with open_cluster(*source, applied.settings) as cluster:
        yield cluster, applied


def say_what_applies(origin: str, namespace: str, *, of: str = "namespace") -> None:
    """Name the settings and the namespace of an answer, on standard error; ``of`` is what the namespace is."""
    write.line(f"settings: {origin}; {of}: {namespace}", err=True)


# The namespace of a command whose objects may name others.
OF_UNNAMED: Final = "namespace where none is named"
