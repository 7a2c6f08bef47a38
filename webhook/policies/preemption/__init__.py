"""The preemption policy: a VM's pod that a scheduler or a taint would have deleted stays until the VM has moved.

Denials say when to ask again, so that schedulers and the taint controller wait by themselves (docs/adr/0034). How long
they have waited, and for what, the cluster's migrations say: every replica, also one that has just started, decides
alike.
"""
