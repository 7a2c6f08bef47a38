"""The profiles of the second scheduler, as it is installed, by which it scores nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from webhook import names
from webhook.cluster.reader import ObjectReader
from webhook.errors import InputError
from webhook.k8s.resources import CONFIG_MAPS
from webhook.k8s.types.core import ConfigMap
from webhook.k8s.yaml_documents import parse_documents
from webhook.placement.profiles import ASSUMED_PROFILES, Profile, Profiles, is_configuration, profiles_of


async def read_profiles(reader: ObjectReader) -> Profiles:
    """The profiles by their schedulerName; the shipped one is assumed where the ConfigMap is not there to be read."""
    found = await reader.get(CONFIG_MAPS, names.SECOND_SCHEDULER, names.SECOND_SCHEDULER)
    return profiles_in([found] if isinstance(found, ConfigMap) else ())


def profiles_in(config_maps: Iterable[ConfigMap]) -> Profiles:
    """The profiles in ConfigMaps by their schedulerName, beside the shipped one, which is assumed."""
    profiles = dict(ASSUMED_PROFILES)
    for config_map in config_maps:
        for text in (config_map.data or {}).values():
            profiles |= _profiles_in(text)
    return profiles


def _profiles_in(text: str) -> Mapping[str, Profile]:
    """Those of a text, without those that kube-scheduler could not read."""
    try:
        values = [document.value for document in parse_documents(text, names.SECOND_SCHEDULER)]
    except InputError:
        return {}
    profiles = {}
    for value in filter(is_configuration, values):
        for _, written in profiles_of(value):
            try:
                profiles[str(written.get("schedulerName"))] = Profile.of(written, value.get("extenders"))
            except msgspec.ValidationError:
                continue
    return profiles
