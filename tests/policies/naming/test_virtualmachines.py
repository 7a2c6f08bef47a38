from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json, config_of, installed, review, vm
from tests.policies.decisions import evaluate
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey
from webhook.policies.naming import reasons
from webhook.policies.naming.settings import NamingSettings
from webhook.policies.naming.virtualmachines import MAX_WITH_STATE

# They find the state of VMs with long names.
FINDS, LACKS = ("1.6.5", "1.7.3", "1.8.2", "1.9.0"), ("1.6.4", "1.7.2", "1.8.1")
TPM = {"devices": {"tpm": {"persistent": True}}}
EFI = {"firmware": {"bootloader": {"efi": {"persistent": True}}}}


def named(length: int, **domain: Any) -> Json:
    made = vm()
    made["metadata"]["name"] = "n" * length
    made["spec"]["template"]["spec"]["domain"] = domain
    return made


def decide(obj: Json, facts: dict[Key[Any], object] | None = None, **request: Any) -> Decision:
    body = review(obj, "alice", **request)
    known = Facts.of(facts or {})
    return evaluate("/validate/naming/virtualmachines/enforce", body, known, NamingSettings())


@pytest.mark.parametrize(("length", "is_denied"), [(5, False), (63, False), (64, True), (253, True)])
def test_a_name_that_is_no_label_cannot_be_migrated(length: int, is_denied: bool) -> None:
    """No release can, and no fact is asked for."""
    decision = decide(named(length))
    assert decision.code == (reasons.UNMIGRATABLE if is_denied else reasons.MIGRATABLE)
    if is_denied:
        assert decision.denial
        assert (decision.denial.code, decision.denial.causes[0].field) == (422, "metadata.name")
        assert f"has {length} characters (limit 63)" in decision.denial.message


@pytest.mark.parametrize("domain", [TPM, EFI], ids=["tpm", "efi"])
@pytest.mark.parametrize(("releases", "is_denied"), [(LACKS, True), (FINDS, False)])
def test_persistent_state_takes_a_shorter_name_before_it_is_found_by_its_label(
    domain: Json, releases: tuple[str, ...], is_denied: bool
) -> None:
    for release in releases:
        facts: dict[Key[Any], object] = {KubeVirtKey(): installed(config_of(release, {}))}
        decision = decide(named(MAX_WITH_STATE + 1, **domain), facts)
        assert bool(decision.denial) == is_denied, release
        assert not decide(named(MAX_WITH_STATE, **domain), facts).denial
        assert not decide(named(MAX_WITH_STATE + 1), facts).denial
    assert MAX_WITH_STATE == 37


@pytest.mark.parametrize("domain", [{}, {"devices": {"tpm": {}}}, {"devices": {"tpm": {"persistent": False}}}])
def test_other_vms_may_have_any_label_as_their_name(domain: Json) -> None:
    assert decide(named(63, **domain)).code == reasons.MIGRATABLE


def test_a_configuration_that_cannot_be_read_denies_nothing() -> None:
    decision = decide(named(40, **TPM), {KubeVirtKey(): Unavailable("no answer")})
    assert (decision.code, decision.denial) == (common.LOOKUP_FAILED, None)
    assert decision.warnings


def test_an_update_changes_no_name() -> None:
    obj = named(64)
    assert decide(obj, operation="UPDATE", oldObject=obj).code == common.OTHER_OPERATION


def test_a_vm_without_a_template_is_for_others_to_deny() -> None:
    obj = named(40)
    for spec in ({}, {"template": None}, {"template": {"spec": None}}, {"template": {"spec": {"domain": None}}}):
        assert decide({**obj, "spec": spec}).code == reasons.MIGRATABLE
