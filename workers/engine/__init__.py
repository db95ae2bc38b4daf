"""Engines: what turns an image and a question into an answer."""
