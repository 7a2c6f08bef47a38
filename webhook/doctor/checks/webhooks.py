"""Are the webhook configurations there, and as the settings want them? Whose caBundles they hold is not asked here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook import names
from webhook.doctor.support.finding import Finding, Verdict, pluralize, several, unreadable
from webhook.doctor.support.installation import NAME, Installation
from webhook.doctor.support.views import CONFIGURATIONS, InstalledWebhookConfiguration
from webhook.errors import Unavailable
from webhook.install.registration import Manifest
from webhook.install.stages import NOT_YET

CHECK: Final = "webhooks"
APPLY: Final = "run kubevirt-webhook install, or apply kubevirt-webhook manifests webhooks"

# What an entry does and to whom; a difference elsewhere costs time or tidiness.
_GRAVE: Final = ("clientConfig", "rules", "namespaceSelector", "objectSelector", "matchConditions", "failurePolicy")
_LESSER: Final = ("timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy", "admissionReviewVersions")
_SCALARS: Final = ("failurePolicy", "timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy")


async def check(installation: Installation) -> list[Finding]:
    """Compare what there is with `registration.configurations`."""
    found: list[Finding] = []
    for kind in CONFIGURATIONS:
        live = await installation.configurations(kind)
        if isinstance(live, Unavailable):
            found.append(unreadable(CHECK, f"{kind}s", live))
            continue
        wanted = [manifest for manifest in installation.expected_configurations() if manifest["kind"] == kind]
        by_name = {one.meta.name: one for one in live}
        for manifest in wanted:
            found += _compare(manifest, by_name.get(manifest["metadata"]["name"]))
        known = {manifest["metadata"]["name"] for manifest in wanted}
        found += _find_leftovers(kind, (one for one in live if one.meta.name not in known))
    return found


def _compare(manifest: Manifest, live: InstalledWebhookConfiguration | None) -> list[Finding]:
    subject = f"{manifest['kind']} {manifest['metadata']['name']}"
    wanted: list[dict[str, Any]] = msgspec.to_builtins(manifest.get("webhooks", ()))
    if live is None:
        what = f"it isn't there, so that nobody calls us for its {pluralize(len(wanted), 'entry', 'entries')}"
        return [Finding(CHECK, subject, "failure", what, APPLY)]
    by_name = {str(entry.get("name")): entry for entry in live.webhooks or ()}
    found: list[Finding] = []

    def tell(verdict: Verdict, what: str, todo: str = APPLY) -> None:
        found.append(Finding(CHECK, subject, verdict, what, todo))

    expected = [entry["name"] for entry in wanted]
    if missing := [name for name in expected if name not in by_name]:
        tell("failure", f"entries are missing: {several(_short(missing))}")
    extra = [name for name in by_name if name not in expected]
    if ours := [name for name in extra if name.endswith(f".{names.DOMAIN}")]:
        tell("failure", f"entries are there that the settings have switched off: {several(_short(ours))}")
    if foreign := [name for name in extra if not name.endswith(f".{names.DOMAIN}")]:
        tell(
            "warning", f"entries are there that are not ours: {several(foreign)}", "move them to another configuration"
        )
    if [name for name in by_name if name in expected] != [name for name in expected if name in by_name]:
        tell("warning", "its entries stand in another order: instancetypes come before scheduling")
    pairs = [(entry, by_name[entry["name"]]) for entry in wanted if entry["name"] in by_name]
    if waiting := [entry["name"] for entry, has in pairs if has.get("matchConditions") == [NOT_YET]]:
        todo = "run kubevirt-webhook install again: an earlier one did not end"
        tell("failure", f"entries are not switched on yet: {several(_short(waiting))}", todo)
    pairs = [(entry, has) for entry, has in pairs if entry["name"] not in waiting]
    for field in (*_GRAVE, *_LESSER):
        _differences(field, pairs, tell)
    if not found:
        tell("ok", f"{pluralize(len(wanted), 'entry', 'entries')}, as the settings want them", "")
    return found


def _differences(field: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]], tell: Any) -> None:
    """Tell of entries whose field is another: those that are alike in one sentence."""
    by_text: dict[str, list[str]] = {}
    for wanted, has in pairs:
        should, is_ = _normal(field, wanted.get(field)), _normal(field, has.get(field))
        if should != is_:
            text = (
                f"is {is_} where the settings want {should}" if field in _SCALARS else "is not what the settings want"
            )
            by_text.setdefault(text, []).append(wanted["name"])
    for text, entries in by_text.items():
        tell("failure" if field in _GRAVE else "warning", f"{field} {text}: {several(_short(entries))}")


def _normal(field: str, value: Any) -> Any:
    """Without what the certificates' keeper writes, and with absent as empty."""
    if field == "clientConfig" and isinstance(value, dict):
        return {key: part for key, part in value.items() if key != "caBundle"}
    return value or None


def _find_leftovers(kind: str, others: Iterable[InstalledWebhookConfiguration]) -> list[Finding]:
    return [
        Finding(
            CHECK,
            f"{kind} {one.meta.name}",
            "warning",
            "it calls a server of ours too, such as one of serve --register, which is gone or somebody's trial",
            f"delete it if nobody uses it: kubectl delete {kind.lower()} {one.meta.name}",
        )
        for one in others
        if one.ours or one.meta.label("app.kubernetes.io/name") == NAME
    ]


def _short(entries: list[str]) -> list[str]:
    return [name.removesuffix(f".{names.DOMAIN}") for name in entries]
