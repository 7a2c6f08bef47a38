"""What is compared: the scores that prefer nodes with a pod's images, and none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from bench.placement.profiles import SPREAD_FILE, shipped

STANZA_FILE: Final = SPREAD_FILE.with_name("layers.yaml")
SCHEDULER: Final = "kubevirt"


@dataclass(frozen=True, slots=True)
class LayersCase:
    """One configuration of the scheduler.

    Attributes:
        key: for the command line and programs.
        title: for people.
        image_locality: the weight of ImageLocality; 0: off.
        weight: the weight of the extender; 0: there is none.
        is_stock: the profile is kube-scheduler's own.
    """

    key: str
    title: str
    image_locality: int = 0
    weight: int = 0
    is_stock: bool = False

    def configuration(self, url: str) -> dict[str, Any]:
        """A KubeSchedulerConfiguration.

        Args:
            url: the ``urlPrefix`` of the extender.
        """
        profile: dict[str, Any] = {"schedulerName": SCHEDULER} if self.is_stock else shipped()
        if not self.is_stock and self.image_locality:
            profile["plugins"]["score"]["enabled"].append({"name": "ImageLocality", "weight": self.image_locality})
        configuration: dict[str, Any] = {"profiles": [profile]}
        if self.weight:
            stanza = yaml.safe_load(STANZA_FILE.read_text())["extenders"][0]
            # A busy machine must not turn the case into the one without an extender.
            configuration["extenders"] = [{**stanza, "urlPrefix": url, "weight": self.weight, "httpTimeout": "5s"}]
        return configuration


NEITHER: Final = LayersCase("neither", "neither: the profile spread")
STOCK: Final = LayersCase("stock", "ImageLocality: the stock profile", is_stock=True, image_locality=1)
CASES: Final = (
    NEITHER,
    STOCK,
    LayersCase("images-10", "ImageLocality: the profile spread, weight 10", image_locality=10),
    LayersCase("layers-1", "layers: the profile spread, weight 1", weight=1),
    LayersCase("layers-2", "layers: the profile spread, weight 2", weight=2),
    LayersCase("layers-5", "layers: the profile spread, weight 5", weight=5),
    LayersCase("layers-10", "layers: the profile spread, weight 10", weight=10),
)
