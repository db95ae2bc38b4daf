"""What makes a run impossible as it was asked for."""


class WrongRun(Exception):
    """The text says what is wrong, where, and what to do."""
