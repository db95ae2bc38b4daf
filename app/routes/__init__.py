"""HTTP in and out, nothing else: one file per resource."""
