"""Every engine behind the one interface: ours, vLLM in process, and remote servers."""
