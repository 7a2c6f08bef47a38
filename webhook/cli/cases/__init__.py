"""`kubevirt-webhook test`: declarative cases, which say what a review must decide."""
