"""What the steps of a run take, kernel by kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Times:
    """Seconds of one run.

    kernels: by native step, those of each of its kernels, over all its runs and iterations: [kernels]; runs: how many
    these were. host: by step, those of nodes on the host, without the native code that their bodies run.
    """

    def __init__(self) -> None:
        self.kernels: dict[Any, npt.NDArray[np.float64]] = {}
        self.runs: dict[Any, int] = {}
        self.host: dict[Any, float] = {}

    def add(self, step: Any, seconds: npt.NDArray[np.float64], runs: int = 1) -> None:
        """Note some runs of a native step."""
        self.runs[step] = self.runs.get(step, 0) + runs
        before = self.kernels.get(step)
        self.kernels[step] = seconds if before is None else before + seconds

    def add_host(self, step: Any, seconds: float) -> None:
        """Note a run of a node on the host."""
        self.host[step] = self.host.get(step, 0.0) + seconds

    @property
    def total(self) -> float:
        """The seconds of all steps."""
        return float(sum(seconds.sum() for seconds in self.kernels.values())) + sum(self.host.values())
