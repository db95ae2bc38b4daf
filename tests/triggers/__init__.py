"""`python -m tests.triggers`: what KEDA's triggers read from real servers, beside the truth."""
