"""Tests of a job's whole way."""
