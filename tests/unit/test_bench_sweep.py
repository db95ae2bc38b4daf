"""The sweep's benchmark knows what each picture shows, and stops at a label that says otherwise."""

from io import BytesIO

import numpy as np
import PIL.Image
import pytest

from bench.sweep import check_labels, wanted_labels
from bench.sweep_pictures import colour_in, colour_of, name, picture


@pytest.mark.parametrize("version", [0, 1])
def test_the_colour_of_a_picture_is_found_in_it(version: int) -> None:
    for number in range(50):
        pixels = np.asarray(PIL.Image.open(BytesIO(picture(number, version))))
        assert colour_in(pixels) == colour_of(number, version)


def test_the_labels_that_are_wanted_are_those_of_the_pictures_after_the_changes() -> None:
    wanted = wanted_labels(100, 10)
    assert len(wanted) == 100
    assert wanted[name(9)] == colour_of(9, 1)
    assert wanted[name(10)] == colour_of(10, 0)
    assert name(89) in wanted
    assert name(90) not in wanted
    assert name(109) in wanted


def test_a_label_of_what_a_picture_showed_before_stops_the_benchmark() -> None:
    wanted = wanted_labels(100, 10)
    assert check_labels(wanted | {name(95): "gone"}, wanted) == 100
    with pytest.raises(SystemExit, match="1 labels are wrong"):
        check_labels(wanted | {name(3): "violet"}, wanted)
    with pytest.raises(SystemExit, match="None"):
        check_labels({name(3): wanted[name(3)]}, wanted)
