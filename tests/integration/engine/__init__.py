"""The Transformers engine on small random checkpoints."""
