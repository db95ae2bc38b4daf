"""Checks of what deploys vqueue: manifests, rules of scaling, what triggers read."""
