"""Modules stay small enough to be read in one sitting."""

from statistics import median

from .tree import modules, source

MOST_LINES = 400
MEDIAN_LINES = 100


def lines() -> dict[str, int]:
    return {module: len(source(module).splitlines()) for module in modules()}


def test_no_module_is_longer_than_four_hundred_lines():
    too_long = {module: length for module, length in lines().items() if length > MOST_LINES}
    assert not too_long, f"Split along a second responsibility: {too_long}"


def test_half_of_the_modules_are_shorter_than_a_hundred_lines():
    assert median(lines().values()) < MEDIAN_LINES
