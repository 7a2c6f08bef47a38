"""`make node`: a real node under the control plane, with the image of the Dockerfile, in namespaces of its own."""
