"""Every SQL statement of vqueue, one file per noun. Functions take a session and never commit."""
