"""AdmissionReview in and out: codec, decisions, patches, audit."""
