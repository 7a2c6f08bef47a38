"""The policy scheduling: the scheduler and the spread of virtual machines whose owners chose none."""
