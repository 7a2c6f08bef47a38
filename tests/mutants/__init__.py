"""Rules of KubeVirt's, each broken on purpose, to see whether the tests notice. See `__main__`."""
