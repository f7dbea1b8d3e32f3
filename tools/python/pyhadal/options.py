"""The one way in which the Python commands read numbers from their options."""

from __future__ import annotations

import argparse
import math
from typing import Callable, Union

Number = Union[int, float]


def number(kind: type, least: Number, most: Number) -> Callable[[str], Number]:
    """Returns argparse's `type` of an option that takes an int or a float from `least` to `most`: NaN is in no range."""
    def parse(text: str) -> Number:
        try:
            value = math.nan if "_" in text else kind(text)  # Python's 1_000
        except ValueError:
            value = math.nan
        if least <= value <= most:
            return value
        what = "an integer" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{text} is not {what} from {least:,} to {most:,}")
    return parse
