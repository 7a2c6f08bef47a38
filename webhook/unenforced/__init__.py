"""The look-out for objects that are not as enforce would make them: they came while nobody asked us."""
