"""The instancetypes policy: KubeVirt's own sizes and preferences where KubeVirt does not apply them.

KubeVirt resolves what a VM names, and nothing else. A VM that names nothing gets one CPU, and without memory of its
own it never starts: virt-api denies its VMI ("no memory requested"). A VMI that no VM stands behind cannot name
anything. So new *VMs* get the namespace's defaults as matchers, which KubeVirt then owns like any other
(`virtualmachines`); and *VMIs* are filled as virt-controller fills those of VMs, before KubeVirt's own defaults
(`virtualmachineinstances`). An owner's choice of a size, an instancetype or a preference is kept, and nothing is
written that KubeVirt would deny. What cannot work is denied early.

Nothing is inferred from volumes here: that reads other users' objects with the server's permissions.
"""
