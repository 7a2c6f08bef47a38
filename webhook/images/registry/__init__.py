"""A small client of image registries that trusts neither registries nor the authors of images."""
