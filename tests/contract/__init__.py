"""The API held against its own description by schemathesis, in the tests and as a command."""
