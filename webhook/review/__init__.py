"""From a review's bytes to its answer's bytes: endpoints, scope, driver, reviewer."""
