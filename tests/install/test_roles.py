"""The roles that are made of rights; tests/hack compares them with the manifests."""

from __future__ import annotations

import pytest

from webhook.cluster.rights import RIGHTS
from webhook.install.roles import ROLES, evaluating
from webhook.k8s.rights import Permission, Right
from webhook.policies.registry import POLICIES
from webhook.policy import AnyPolicy


def granted(*rights: Right) -> set[Permission]:
    return {permission for right in rights for permission in right.permissions}


@pytest.mark.parametrize("removed", POLICIES, ids=lambda policy: policy.name)
def test_without_a_policy_its_rights_are_gone_that_no_other_needs(removed: AnyPolicy) -> None:
    left = [policy for policy in POLICIES if policy is not removed]
    needed = granted(*RIGHTS, *(right for policy in left for right in policy.rights))
    assert granted(*evaluating(left).rights) == needed
    assert granted(*evaluating(POLICIES).rights) == needed | granted(*removed.rights)


def test_without_policies_the_cluster_is_read_and_nothing_else() -> None:
    assert granted(*evaluating(()).rights) == granted(*RIGHTS)


def test_no_role_writes_but_for_certificates() -> None:
    """A SubjectAccessReview is created and not stored."""
    verbs = {(each.verb, each.resource) for each in granted(*ROLES[0].rights)}
    assert {each for each in verbs if each[0] not in ("get", "list", "watch")} == {("create", "subjectaccessreviews")}


def test_every_permission_has_a_reason() -> None:
    assert [right for right in ROLES[0].rights if not right.why] == []
