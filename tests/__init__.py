"""The tests: unit (no server), integration (real servers), e2e (the whole way of a job)."""
