"""The groups policy: VMs that stay apart or together, and VMs that run on certain hosts.

An owner puts a VM into a group by a label of its template, from where KubeVirt copies it to the VMI and to each
launcher pod. What the group means, only admins write: in the settings, or in an annotation of the namespace. It becomes
affinity of the launcher pods. In the VMI, virt-controller would make the affinity equal to the VM's again
(pkg/virt-controller/watch/vm, ``handleAffinityChangeRequest``), and while a migration runs it could not, and would do
nothing else for the VM.

What a group requires is recorded in the VMI when that is created. A VMI that is older than a requirement gets it as a
preference, which helps its migrations and never leaves one without a node.
"""
