"""`kubevirt-webhook review`: the server's evaluation of manifests, without a server."""
