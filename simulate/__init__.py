"""The simulator of a scaled deployment: traffic, queue, scaling rules, pods, GPUs; no torch, no servers."""
