"""What a replica costs before its first review and while it idles: in a pod, over a fake API server.

Seconds and CPU until it is ready, memory, and the longest turn of the event loop while lists are read: at the start,
and once more when the API server has forgotten the watches' versions. Counted figures of the same are held by tests:
bytes of a node's labels (``tests/placement/test_nodes.py``), and objects between two turns
of the event loop (``tests/k8s/client/test_reflector.py``).
"""
