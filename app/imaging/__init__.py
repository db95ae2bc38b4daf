"""The workshop behind app/images.py: what a file is, how its header reads, what its colours mean."""
