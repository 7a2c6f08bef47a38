from __future__ import annotations

import json

import pytest

from webhook.errors import InputError
from webhook.policies.sizes.settings import (
    REQUIRE_INSTANCETYPE_ANNOTATION,
    SIZE_LIMITS_ANNOTATION,
    SizeSettings,
    read_limits,
)
from webhook.settings_file import parse

LIMITS, REQUIRED = SIZE_LIMITS_ANNOTATION, REQUIRE_INSTANCETYPE_ANNOTATION


def test_a_namespace_replaces_what_the_cluster_says() -> None:
    cluster = parse(b"sizes: {requireInstancetype: true, limits: [{cpu: {max: 2}}]}", "s.yaml").of(SizeSettings)
    assert cluster.with_annotations({}) is cluster
    assert cluster.with_annotations({REQUIRED: "false"}).require_instancetype is False
    (own,) = cluster.with_annotations({LIMITS: '{"cpu": {"max": 8}, "memory": {"step": "512Mi"}}'}).limits
    assert (own.cpu.max, own.memory.step) == (8, "512Mi")
    several = cluster.with_annotations({LIMITS: '[{"cpu": {"max": 4}}, {"cpu": {"min": 8}}]'}).limits
    assert [each.cpu.max for each in several] == [4, 0]
    assert cluster.with_annotations({LIMITS: " "}).limits == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"memory": {"max": "lots"}}', 'memory.max: "lots" is not an amount of memory'),
        ('{"cpu": {"maxx": 4}}', "cpu.maxx: unknown setting"),
        ('{"Cpu": {"max": 4}}', "Cpu: unknown setting; did you mean cpu?"),
        ('[{"memory_per_cpu": {}}]', "[0].memory_per_cpu: unknown setting; did you mean [0].memoryPerCpu?"),
        ('{"memory": {"max": 8}}', "memory.max: must be a string, not 8; write it in quotes"),
        ('[{"cpu": {"max": 4}}, {"cpu": {"min": 8, "max": 2}}]', "[1].cpu.max: 2 is less than min (8)"),
        ('{"memory": {"min": "8Gi", "max": "4Gi"}}', "memory.max: 4Gi is less than min (8Gi)"),
        ('{"memory": {"min": "0"}}', 'memory.min: "0" is not an amount of memory'),
        ('{"cpu": {"max": -1}}', "cpu.max: must be from 0 to 100000, not -1"),
        ("8", "must be a mapping, not 8"),
        ("[", "it is not JSON"),
        ("[" * 10_000, "it is nested too deeply"),
        ("cpu: {max: 8}", "it is not JSON"),
        (" " * 20_000 + "{}", "it has more than 16384 characters"),
    ],
)
def test_a_mistake_in_the_annotation_is_one_sentence(text: str, what: str) -> None:
    settings = SizeSettings().with_annotations({LIMITS: text})
    assert settings.limits == ()
    assert settings.annotation_mistakes.keys() == {LIMITS}
    assert settings.annotation_mistakes[LIMITS].startswith(f"annotation {LIMITS}: {what}")


def test_a_mistake_in_the_file_has_its_line() -> None:
    with pytest.raises(InputError, match=r"s.yaml:3: sizes.limits\[0\].memory.step: \"x\" is not an amount"):
        parse(b"sizes:\n  limits:\n  - memory: {step: x}", "s.yaml")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, ""),
        ({"cpu": {"max": 4}}, "1 to 4 vCPUs"),
        ({"cpu": {"min": 2}}, "2 or more vCPUs"),
        ({"cpu": {"step": 2}}, "any number of vCPUs in steps of 2"),
        ({"cpu": {"min": 2, "max": 2}}, "2 vCPUs"),
        ({"memory": {"max": "4Gi", "step": "1Gi"}}, "up to 4Gi memory in steps of 1Gi"),
        ({"memory": {"step": "1Gi"}}, "any memory in steps of 1Gi"),
        ({"memoryPerCpu": {"min": "1Gi"}}, "1Gi or more memory per vCPU"),
    ],
)
def test_a_range_in_words(value: object, said: str) -> None:
    (limits,) = read_limits(json.dumps(value))
    assert limits.text == said
