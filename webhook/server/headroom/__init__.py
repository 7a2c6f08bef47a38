"""What the headroom policy knows of the cluster: its pods, VMs and nodes, and the starts that were admitted."""
