"""Default values of VMIs (KubeVirt, pkg/defaults, pkg/liveupdate)."""
