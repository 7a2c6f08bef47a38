"""Whether a declared scheduler is available: its Lease, and the pods that wait for it."""
