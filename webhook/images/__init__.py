"""Which nodes already have the layers of a pod's images: pure computations without I/O."""
