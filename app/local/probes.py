"""Whether a server on this machine answers."""

import socket
import urllib.error
import urllib.request

PROBE_S = 2.0


def http_status(url: str) -> int:
    """The status that a loopback URL answers with; 0 when nothing answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=PROBE_S) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PROBE_S).close()
    except OSError:
        return False
    return True
