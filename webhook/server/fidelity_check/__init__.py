"""The check that running VMs are what KubeVirt's rules, as implemented, make of them."""
