"""What runs beside reviews: the drift scan, the fidelity check, Events."""
