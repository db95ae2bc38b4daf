"""The console in a browser, against a vqueue that runs with the demo model."""
