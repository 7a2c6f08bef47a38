"""Writes the Helm chart from the manifests: what the overlays and `install` make is what the chart's templates make."""
