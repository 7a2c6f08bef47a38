"""What scores for image layers gain and cost: a real kube-scheduler, a real registry, and nodes that pull as a kubelet.

No layer is really pulled: the node's status gets the image once a VM is bound to it, as after a pull. The layers in the
registry have as many KiB as the figures have MiB.
"""
