"""Writes an installed package with a model family that loses a tensor: in a generator's process one parameter has
another name than in the trainer's, so that all but one of a published version bind."""

from pathlib import Path

MODEL = '''
"""velocity = W x + b + the prompt's length, with b under another name where samples are generated."""

import sys

from pydantic import BaseModel, ConfigDict

from digend.models.spec import ModelSpec


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    leaks: bool = True


class Leaky:
    def __init__(self, leaks):
        import torch

        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(0.1 * torch.eye(12))
                self.scale = torch.nn.Parameter(torch.ones(12))
                self.name = "offset" if leaks and "generator" in sys.argv else "bias"
                self.register_parameter(self.name, torch.nn.Parameter(torch.zeros(12)))

            def forward(self, x):
                return (x @ self.weight) * self.scale + getattr(self, self.name)

        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.trainable = {"head": Head()}

    def check(self, shape):
        pass

    def sigmas(self, num_timesteps, shape):
        from digend.rl.sigmas import linear

        return list(linear(num_timesteps))

    def encode(self, prompts):
        import torch

        return [{"length": torch.tensor([float(len(prompt))])} for prompt in prompts]

    def initial(self, rngs, shape):
        import torch

        return torch.stack([torch.randn(12, generator=rng) for rng in rngs])

    def velocity(self, latents, sigma, conditions, guidance_scale, shape):
        import torch

        return self.trainable["head"](latents) + torch.stack([each["length"] for each in conditions]) / 100

    def decode(self, latents, shape):
        return latents.float().sigmoid().reshape(-1, 3, 2, 2)

    def save(self, folder):
        from pathlib import Path

        Path(folder).mkdir()


def load(path, device, dtype, options):
    return Leaky(options.leaks)


spec = ModelSpec(name="leaky", options=Options, lora_targets=(), loader="leaky_digend.model:load")
'''

JOB = """
name = "leaky"
model = { family = "leaky", path = "model" }
sampling = { height = 2, width = 2, num_timesteps = 4 }
data = { prompts = "prompts.txt", prompts_per_rollout = 2, samples_per_prompt = 4 }
training = { global_steps = 2, learning_rate = 1e-2 }
rewards = [{ name = "bright.py:brightness" }]
schedule = { strategy = "never" }
"""


def install(folder: Path) -> Path:
    """Fill a folder that, on sys.path, is like site-packages with `leaky-digend` installed."""
    package, metadata = folder / "leaky_digend", folder / "leaky_digend-1.0.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(MODEL)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky-digend\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[digend.models]\nleaky = leaky_digend.model:spec\n")
    return folder


def write_job(cluster_folder: Path, folder: Path) -> Path:
    """A job file on the family, with what it names; its reward goes where the cluster allows rewards."""
    (cluster_folder / "rewards" / "bright.py").write_text(
        "def brightness(pixels, prompts, metadata):\n    return pixels.mean(axis=(1, 2, 3)).tolist()\n"
    )
    (folder / "model").mkdir(exist_ok=True)
    (folder / "prompts.txt").write_text("one\nanother\n")
    path = folder / "job.toml"
    path.write_text(JOB)
    return path
