"""What the creation of a VM costs at admission, beside a real KubeVirt."""
