"""How many files and connections a process may have open at once."""

import resource


def open_many() -> None:
    """As many as the system lets us have; shells and service managers usually begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
