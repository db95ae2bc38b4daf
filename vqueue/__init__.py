"""A client of vqueue's HTTP API, for what the official `openai` SDK has no calls for."""
