"""For tests of pictures that look the same: a picture as a data URL, and a mill with somebody who looks."""

import base64

from tests.mill import Mill
from workers.hashing import Hasher


def data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def grind(mill: Mill, hasher: Hasher) -> None:
    """As in a mill, with somebody who looks at images; who waits for that is found by the reaper at last."""
    mill.read()
    mill.send()
    while hasher.step():
        pass
    mill.dispatcher.reap()
    mill.grind()
