"""The naming policy: VMs whose names KubeVirt can start and never migrate are denied while the name can be changed.

KubeVirt puts a VM's name into labels and into names of other objects, which are shorter. It accepts the VM, and nobody
notices until a drain waits for it: a name cannot be changed, so the VM has to be made anew.
"""
