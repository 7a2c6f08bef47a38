"""Whether a series of samples grows: its slope, with a confidence interval that samples close in time don't narrow.

What a process holds now depends on what it held five seconds ago, so hundreds of samples are far fewer independent
ones. The interval counts those: the residuals' correlation of one sample with the next says how many there are (Santer
et al., "Statistical significance of trends and trend differences in layer-average atmospheric temperature time series",
Journal of Geophysical Research 105, 2000).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Two-sided, 95 %.
_Z: Final = 1.959964
_HOUR: Final = 3600.0
# Below these a line through the samples says nothing.
_FEWEST: Final = 4


@dataclass(frozen=True)
class Trend:
    """How a series changes.

    Attributes:
        mean: of the samples.
        slope: in an hour.
        margin: the slope's 95 % confidence interval goes so far to both sides; infinite where nothing is known.
    """

    mean: float
    slope: float
    margin: float

    @property
    def grows(self) -> bool:
        """Whether the slope is above zero by more than the noise explains."""
        return self.slope > self.margin

    def __str__(self) -> str:
        margin = f"± {self.margin:.2f}" if math.isfinite(self.margin) else "± anything"
        return f"{self.slope:+.2f} {margin} an hour"


def trend(seconds: Sequence[float], values: Sequence[float]) -> Trend:
    """The trend of values that were taken at these times."""
    count, mean = len(values), statistics.fmean(values) if values else 0.0
    if count < _FEWEST:
        return Trend(mean, 0.0, math.inf)
    slope, intercept = statistics.linear_regression(seconds, values)
    residuals = [value - slope * at - intercept for at, value in zip(seconds, values, strict=True)]
    squares = sum(residual * residual for residual in residuals)
    middle = statistics.fmean(seconds)
    spread = sum((at - middle) ** 2 for at in seconds)
    freedom = independent(residuals) - 2
    if freedom <= 0:
        return Trend(mean, slope * _HOUR, math.inf)
    error = math.sqrt(squares / freedom / spread)
    return Trend(mean, slope * _HOUR, _student(freedom) * error * _HOUR)


def independent(residuals: Sequence[float]) -> float:
    """How many independent samples these are worth."""
    count = len(residuals)
    before, after = residuals[:-1], residuals[1:]
    squares = sum(residual * residual for residual in residuals)
    if squares == 0:
        return count
    lagged = sum(one * other for one, other in zip(before, after, strict=True)) / squares
    return count * (1 - max(0.0, lagged)) / (1 + max(0.0, lagged))


def _student(freedom: float) -> float:
    """The quantile of Student's distribution, by Cornish and Fisher's expansion."""
    first = (_Z**3 + _Z) / (4 * freedom)
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    return _Z + first + second


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of them are not above; of none, not a number."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
