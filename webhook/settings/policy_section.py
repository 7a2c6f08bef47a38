"""The base of a policy's section of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeAlias

from webhook.errors import InputError
from webhook.k8s.documents import mistakes_of
from webhook.settings.fields import Derived, derived
from webhook.settings.schedulers import SchedulerSettings
from webhook.settings.section import Section

FailurePolicy = Literal["Ignore", "Fail"]
# The settings, by attribute, that an annotation with this text replaces; an `InputError` where it cannot be read.
AnnotationReader: TypeAlias = Callable[[str], Mapping[str, Any]]


class PolicySettings(Section):
    """What every policy's section has."""

    # Whether namespaces without the policy's label count as ``enforce``.
    cluster_wide: bool = False
    # Where KubeVirt runs; empty: wherever a KubeVirt object is.
    kubevirt_namespace: Derived[str] = derived("")
    # Of the namespace's annotations those that cannot be read, so that they do not count, by their keys: a sentence
    # each, which names the annotation.
    annotation_mistakes: Derived[Mapping[str, str]] = derived({})

    @property
    def fails_closed(self) -> bool:
        """Whether requests are denied while they cannot be evaluated; never by a policy without that setting."""
        return False

    @property
    def watched_schedulers(self) -> Mapping[str, SchedulerSettings]:
        """The schedulers, by name, whose health the policy asks for; most policies ask for none."""
        return {}

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section as a namespace's annotations change it; most policies read none.

        A policy reads no annotation of a namespace but here. One with a list of values has that list in
        `Policy.annotations`, and needs no more than to be understood; one that can be wrong otherwise, as text or as
        JSON, is read by `replace_by`, and its key given to `validates_annotations`.
        """
        return self

    def replace_by(self, annotations: Mapping[str, str], readers: Mapping[str, AnnotationReader]) -> Self:
        """The section with what those of the annotations replace that are there, and with their mistakes.

        Args:
            annotations: the namespace's.
            readers: by the annotation's key, what makes settings of its text. The place of the error that it raises
                is within the text; empty: the whole.
        """
        changed: dict[str, Any] = {}
        mistakes: dict[str, str] = {}
        for key, read in readers.items():
            if (text := annotations.get(key)) is None:
                continue
            try:
                changed |= read(text)
            except InputError as error:
                mistakes[key] = f"annotation {key}: {mistakes_of(error)[0]}"
        if mistakes:
            changed["annotation_mistakes"] = mistakes
        return self.model_copy(update=changed) if changed else self

    def checked(self, schedulers: Mapping[str, SchedulerSettings]) -> Self:
        """The section of a file that declares these schedulers, for the policies that name one; or a `mistake`."""
        return self

    def completed(self, kubevirt_namespace: str, schedulers: Mapping[str, SchedulerSettings]) -> Self:
        """The section with what it takes from other sections; most policies need no schedulers."""
        return self.model_copy(update={"kubevirt_namespace": kubevirt_namespace})
