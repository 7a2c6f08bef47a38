from __future__ import annotations

import asyncio
from typing import Any, cast

from webhook import names
from webhook.errors import Unavailable
from webhook.findings import Finding
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.policies.sizes.checks import check_annotations
from webhook.policy import Installed


class _Cluster:
    def __init__(self, answer: tuple[Namespace, ...] | Unavailable) -> None:
        self.answer = answer
        self.reader = self

    async def all(self, _: object) -> Any:
        return self.answer


def found(answer: tuple[Namespace, ...] | Unavailable) -> list[Finding]:
    return asyncio.run(check_annotations(cast("Installed", _Cluster(answer))))


def namespace(name: str, text: str | None = None) -> Namespace:
    return Namespace(ObjectMeta(name=name, annotations={names.SIZE_LIMITS_ANNOTATION: text} if text else None))


def test_an_annotation_that_cannot_be_read_is_named() -> None:
    findings = found((namespace("a", '{"cpu": {"max": 4}}'), namespace("b", '{"cpu": {"maximum": 4}}'), namespace("c")))
    assert [(each.verdict, each.code, each.subject) for each in findings] == [
        ("warning", "annotation-invalid", "Namespace b")
    ]
    assert "limits[0].cpu.maximum: unknown setting" in findings[0].found


def test_without_a_mistake_it_says_how_many_there_are() -> None:
    (finding,) = found((namespace("a", '{"cpu": {"max": 4}}'), namespace("b")))
    assert (finding.verdict, finding.found) == ("ok", "1 namespace with size limits of its own")
    (finding,) = found(Unavailable("no answer"))
    assert finding.verdict == "unknown"
