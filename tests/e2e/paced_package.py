"""Writes an installed package with a model family whose forward pass takes its time, so that on a busy box too a
generator's speed is what the package says. On a slow box the same package does each forward twice."""

from pathlib import Path

FORWARD_S = 0.025
"""The wait stands for a GPU's kernels: the little model's own pass takes a tenth of it."""

MODEL = '''
"""FLUX, each forward pass of the rollout done TIMES times and FORWARD_S long."""

import time
from dataclasses import replace

from digend.models.flux import spec as flux


class Paced:
    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def velocity(self, *words):
        import torch

        if torch.is_grad_enabled():
            return self._model.velocity(*words)
        for _ in range({times}):
            time.sleep({forward_s})
            velocity = self._model.velocity(*words)
        return velocity


def load(path, device, dtype, options):
    from digend.models.flux_model import load

    return Paced(load(path, device, dtype, options))


spec = replace(flux, name="paced", loader="paced_digend.model:load")
'''


def install(folder: Path, times: int) -> Path:
    """Fill a folder that, on sys.path, is like site-packages with `paced-digend` installed."""
    package, metadata = folder / "paced_digend", folder / "paced_digend-1.0.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(MODEL.replace("{times}", str(times)).replace("{forward_s}", str(FORWARD_S)))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: paced-digend\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[digend.models]\npaced = paced_digend.model:spec\n")
    return folder


def pretend_version(folder: Path, package: str, version: str) -> Path:
    """Fill a folder that, first on sys.path, makes an installed package say another version of itself."""
    metadata = folder / f"{package}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return folder
