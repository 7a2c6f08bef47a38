"""What draining nodes would do to the VMs on them: a plan, made of the cluster's objects without changing any."""
