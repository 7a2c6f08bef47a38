"""The smallest changes that say what a rule did to an object.

KubeVirt's rules read an object and write it anew: quantities become canonical, empty values and unknown fields vanish.
None of that may reach the owner's object. So the object as it was read (``before``) is compared with what the rule made
of it (``after``), and only the difference is applied to the object as its owner wrote it.
"""

from __future__ import annotations

from typing import Any

from webhook.admission.decision import Change


def overlay(original: Any, before: Any, after: Any) -> Any:
    """``original`` with the difference between ``before`` and ``after``; shares what has not changed.

    In lists, items keep their places, and new ones follow.
    """
    if before == after:
        return original
    if original is before:
        # The owner wrote it as it was read.
        return after
    if isinstance(after, dict):
        old = original if isinstance(original, dict) else {}
        read = before if isinstance(before, dict) else {}
        result = {key: value for key, value in old.items() if key in after or key not in read}
        for key, value in after.items():
            if key not in read or read[key] != value:
                # Most values are scalars: no call for those.
                is_scalar = isinstance(value, str | int | float)
                result[key] = value if is_scalar else overlay(old.get(key), read.get(key), value)
        return result
    if isinstance(after, list) and isinstance(before, list) and isinstance(original, list):
        items = zip(original, before, after, strict=False)
        return [overlay(*item) for item in items] + after[len(before) :]
    return after


def changes(
    path: tuple[str, ...], original: Any, before: dict[str, Any], after: dict[str, Any], reason: str
) -> list[Change]:
    """The difference as changes of members of objects, lists as a whole.

    Args:
        path: the path of ``original`` in the object.
        original: plain JSON, as it was sent; None where there is nothing.
        before: what the rule read of it.
        after: what it made of it.
        reason: the code that all changes carry.
    """
    old = original if isinstance(original, dict) else {}
    result = [
        Change((*path, key), old[key], None, reason) for key in before if key not in after and old.get(key) is not None
    ]
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        there, inner = old.get(key), before.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            result += changes((*path, key), there, inner if isinstance(inner, dict) else {}, value, reason)
        else:
            result.append(Change((*path, key), there, overlay(there, inner, value), reason))
    return result
