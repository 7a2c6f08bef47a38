"""What owners and admins have the say in: opting out, and which instancetypes may be named."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.kubevirt import reference
from webhook.kubevirt.matcher import PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.reference import Reference
from webhook.objects import Whole
from webhook.settings.snapshot import InstancetypeSettings

# The marks that we leave, by the matcher's field.
MARKS: Final = {"instancetype": names.INSTANCETYPE_MARK, "preference": names.PREFERENCE_MARK}

_OPT_OUT: Final = names.job_label(names.INSTANCETYPES)
OPTED_OUT: Final = f"the owner says {_OPT_OUT}=off"


def opted_out(whole: Whole) -> bool:
    """Whether an object's owner declines defaults, by a label or an annotation named as the namespace's label."""
    return names.OFF in (whole.meta.label(_OPT_OUT), whole.meta.annotation(_OPT_OUT))


def is_allowed(matcher: Matcher, wanted: Reference, settings: InstancetypeSettings) -> bool:
    """Whether the namespace lets its VMs and VMIs name this; preferences they always may."""
    if matcher is PREFERENCE_MATCHER or settings.allowed is None:
        return True
    return reference.allowed(settings.allowed, matcher, wanted)


def not_allowed(wanted: Reference, namespace: str, settings: InstancetypeSettings) -> str:
    """The sentence about an instancetype that may not be named."""
    listed = ", ".join(settings.allowed or ()) or "none"
    return f"the instancetype {wanted} is not allowed in the namespace {namespace}; allowed are: {listed}"


def default(matcher: Matcher, settings: InstancetypeSettings) -> str:
    """The default for objects that have none; ``""`` for none."""
    return settings.default_preference if matcher is PREFERENCE_MATCHER else settings.default_instancetype
