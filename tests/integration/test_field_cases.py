"""The shared field cases hold, where that folder lies beside the checkout."""

from pathlib import Path

import pytest

from tests.fieldcases.__main__ import main


def test_every_row_that_is_served_holds(shared_cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([str(shared_cases)])
    misses = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MISS")]
    assert (code, misses) == (0, [])
