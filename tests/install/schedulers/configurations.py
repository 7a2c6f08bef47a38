"""Configurations of kube-scheduler, right but for what a test changes."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def profile(name: str = "kubevirt", **more: Any) -> Json:
    return {"schedulerName": name, "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}, **more}


def configuration(*profiles: Json, **more: Any) -> Json:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceNamespace": "kubevirt-scheduler", "resourceName": "s"},
        "profiles": list(profiles) or [profile()],
        **more,
    }
