"""From a VirtualMachine to its VMI (KubeVirt, pkg/virt-controller/watch/vm)."""
