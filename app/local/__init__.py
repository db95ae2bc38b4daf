"""Servers from wheels and one supervisor: everything that `vqueue up` and the tests run on one machine."""
