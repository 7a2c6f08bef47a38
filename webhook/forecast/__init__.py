"""What will happen: what a drain, an update or a migration is going to do, computed from the objects of a cluster."""
