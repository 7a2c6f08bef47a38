"""Migrations of VMs whose pods a scheduler or a taint would have deleted, requested beside the reviews."""
