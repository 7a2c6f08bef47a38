"""Which schedulers are declared, how their health is checked, and which of them is the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from tests.settings.parsing import mistakes, snapshot
from webhook.settings.model import SchedulerHealthSettings, SchedulerSettings, Settings
from webhook.settings.validation import model_of


@pytest.mark.parametrize(
    ("health_check", "read"),
    [
        (False, SchedulerHealthSettings("off")),
        ("off", SchedulerHealthSettings("off")),
        ("pods", SchedulerHealthSettings("pods")),
        ("lease a/b", SchedulerHealthSettings("lease", "a", "b")),
        ("lease   a-1/b.c-d", SchedulerHealthSettings("lease", "a-1", "b.c-d")),
    ],
)
def test_health_checks(health_check: object, read: SchedulerHealthSettings) -> None:
    settings = snapshot({"schedulers": {"kubevirt": {"healthCheck": health_check}}})

    assert settings.scheduling.schedulers["kubevirt"] == SchedulerSettings("kubevirt", read)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        *(
            ({"healthCheck": text}, "syntax")
            for text in ("", "Off", "lease", "lease a", "lease a/b/c", "lease A/b", "leasea/b", "lease a.b/c", "pods ")
        ),
        *(({"healthCheck": other}, "string_type") for other in (True, 1, ["off"])),
        ({}, "missing"),
    ],
)
def test_health_checks_that_are_none(section: dict[str, Any], said: str) -> None:
    assert mistakes({"schedulers": {"kubevirt": section}}) == [(said, ("schedulers", "kubevirt", "healthCheck"))]


@pytest.mark.parametrize(("name", "good"), [("a.b-c", True), ("a" * 253, True), ("a" * 254, False), ("a..b", False)])
def test_schedulers_names(name: str, good: bool) -> None:
    value = {"schedulers": {name: {"healthCheck": "pods"}}, "scheduling": {"schedulerName": name}}
    if good:
        assert snapshot(value).scheduling.schedulers[name].name == name
    else:
        assert [loc for _, loc in mistakes(value)] == [("schedulers", name, "[key]"), ("scheduling", "schedulerName")]


def test_default_scheduler_is_nobody_s_choice() -> None:
    value = {"schedulers": {"default-scheduler": {"healthCheck": "off"}, "kubevirt": {"healthCheck": "off"}}}

    assert mistakes(value) == [("default-scheduler", ("schedulers", "default-scheduler", "[key]"))]


@pytest.mark.parametrize(
    "value",
    [
        {"scheduling": {"schedulerName": "x"}},
        {"schedulers": {}, "scheduling": {"schedulerName": "x"}},
        {
            "schedulers": {"b": {"healthCheck": "off"}, "a": {"healthCheck": "off"}},
            "scheduling": {"schedulerName": "x"},
        },
    ],
    ids=["default", "none", "two"],
)
def test_the_scheduler_is_a_declared_one(value: dict[str, Any], golden: Callable[[str], None]) -> None:
    with pytest.raises(ValidationError) as refused:
        model_of(Settings).model_validate(value)
    (details,) = refused.value.errors()

    assert (details["ctx"]["code"], details["ctx"]["key"]) == ("undeclared", "schedulerName")
    golden(f"{details['ctx']['what']}; {details['ctx']['fix']}")


@pytest.mark.parametrize("scheduling", [{}, {"clusterWide": True}])
def test_the_only_declared_scheduler_is_the_default(scheduling: dict[str, Any]) -> None:
    made = snapshot({"schedulers": {"a": {"healthCheck": "off"}}, "scheduling": scheduling})

    assert made.scheduling.scheduler_name == "a"


def test_the_default_scheduler_name_is_checked_too() -> None:
    assert mistakes({"schedulers": {"a": {"healthCheck": "off"}, "b": {"healthCheck": "off"}}}) == [
        ("undeclared", ("scheduling",))
    ]
