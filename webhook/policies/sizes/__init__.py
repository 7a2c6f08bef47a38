"""The sizes policy: who may set the size of a VM in the VM itself, and which sizes these may be.

An instancetype is an admin's size, and the instancetypes policy has a list of those that a namespace may name. A VM
that sets CPU and memory in its template names none, so that no such list holds it. Here a namespace requires
instancetypes, or limits inline sizes: CPUs, memory, memory per CPU, and their steps.

A VM that exists keeps the size that it has: only a change of it is judged, and never by KubeVirt itself.
"""
