"""The instancetypes policy: KubeVirt's own sizes and preferences where KubeVirt doesn't apply them.

KubeVirt resolves what a VM names, and nothing else: a VM that names nothing gets one CPU and no memory to speak of,
and a VMI that no VM stands behind can't name anything. So new *VMs* get the namespace's defaults as matchers, which
KubeVirt then owns like any other (`virtualmachines`); and *VMIs* are filled as virt-controller fills those of VMs,
before KubeVirt's own defaults (`virtualmachineinstances`). Whoever chose a size, an instancetype or a preference keeps
it, and nothing is written that KubeVirt would refuse. What can't work is refused early (`validation`).

Nothing is inferred from volumes here: that reads other people's objects with the server's rights.
"""
