"""Where a VM may run: what its launcher pod requires of nodes, and which nodes have it."""
