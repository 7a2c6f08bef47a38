"""The defaults policy: what an admin wants of all VMs, where their owners chose nothing.

Tolerations, node selectors, node affinity, priority, eviction strategy, grace period and CPU model. Each stands where
KubeVirt leaves it alone. With the rollout strategy LiveUpdate, virt-controller makes ``nodeSelector``, ``affinity`` and
``tolerations`` of a running VMI equal to the VM's template at each of its rounds
(pkg/virt-controller/watch/vm, ``handleAffinityChangeRequest``, ``handleTolerationsChangeRequest``), and while a
migration runs it can't, and does nothing else for the VM either. So these stand in the launcher pods, which it makes
anew and never compares. The others stand in the VMI from its creation on: virt-controller never compares them with
anything but the template of the VM's start.
"""
