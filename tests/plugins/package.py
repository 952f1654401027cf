"""Writes an installed package with a model family, an algorithm and a reward of its own, as pip would leave it."""

from pathlib import Path

MODEL = '''
"""A family without diffusers: velocity = W x + the prompt's length."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from digend.models.spec import ModelSpec, Shape


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    scale: float = 0.1


class Toy:
    def __init__(self, options: Options, dtype: str) -> None:
        import torch

        self.dtype = getattr(torch, dtype)
        self.device = torch.device("cpu")
        torch.manual_seed(0)
        self.trainable = {"head": torch.nn.Linear(12, 12).to(self.dtype)}
        self.trainable["head"].weight.data.mul_(options.scale)

    def check(self, shape: Shape) -> None:
        if (shape.height, shape.width) != (2, 2):
            raise ValueError("toy draws 2x2 pixels")

    def sigmas(self, num_timesteps: int, shape: Shape) -> list[float]:
        from digend.rl.sigmas import linear

        return list(linear(num_timesteps))

    def encode(self, prompts: Any) -> Any:
        import torch

        return [{"length": torch.tensor([float(len(prompt))])} for prompt in prompts]

    def initial(self, rngs: Any, shape: Shape) -> Any:
        import torch

        return torch.stack([torch.randn(12, generator=rng) for rng in rngs])

    def velocity(self, latents: Any, sigma: Any, conditions: Any, guidance_scale: float, shape: Shape) -> Any:
        import torch

        length = torch.stack([condition["length"] for condition in conditions]).to(self.dtype)
        return self.trainable["head"](latents.to(self.dtype)) + length / 100

    def decode(self, latents: Any, shape: Shape) -> Any:
        return latents.float().sigmoid().reshape(-1, 3, 2, 2)


def load(path: str, device: str, dtype: str, options: BaseModel) -> Toy:
    return Toy(options, dtype)


spec = ModelSpec(name="toy", options=Options, lora_targets=(), loader="toy_digend.model:load")
'''

ALGORITHM = '''
"""Policy gradient without a clip: -A * log_prob."""

from pydantic import BaseModel, ConfigDict

from digend.algorithms.spec import AlgorithmSpec, PairLosses, SamplingRules


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    baseline: float = 0.0


class Reinforce:
    needs_reference = False
    needs_old = False

    def __init__(self, options: Options) -> None:
        self.baseline = options.baseline

    def losses(self, velocities, pairs):
        from digend.diffusion import transition

        velocity = velocities.policy(pairs.latents, pairs.sigma)
        step = transition(
            kernel=pairs.kernel, sample=pairs.latents, velocity=velocity, sigmas=pairs.sigmas,
            index=pairs.index, level=pairs.level, next_sample=pairs.next_latents,
        )
        losses = -(pairs.advantage - self.baseline) * step.log_prob
        still = losses.detach() * 0
        return PairLosses(
            losses=losses, log_ratio=step.log_prob.detach() - pairs.old_log_prob, clipped=still.bool(), kl=still
        )


def rules(options, config):
    return SamplingRules(window_size=None, window_lo=0, window_hi=config.sampling.num_timesteps - 1)


spec = AlgorithmSpec(name="reinforce", options=Options, rules=rules, objective="toy_digend.algorithm:Reinforce")
'''

REWARD = '''
"""How red."""

from digend.rewards.spec import NoOptions, RewardSpec, Scores


class Redness:
    def score(self, batch):
        red = batch.pixels[:, 0].reshape(len(batch.prompts), -1).mean(1)
        return Scores(values=red.tolist(), components={"darkness": (1 - red).tolist()})


def build(options, device):
    return Redness()


spec = RewardSpec(name="redness", options=NoOptions, builder="toy_digend.reward:build")
'''

ENTRY_POINTS = """
[digend.models]
toy = toy_digend.model:spec

[digend.algorithms]
reinforce = toy_digend.algorithm:spec

[digend.rewards]
redness = toy_digend.reward:spec
not_a_reward = toy_digend.model:spec
"""


def install(folder: Path) -> Path:
    """Fill a folder that, once on sys.path, is like site-packages with `toy-digend` installed."""
    package, metadata = folder / "toy_digend", folder / "toy_digend-1.0.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    for name, source in (("__init__", ""), ("model", MODEL), ("algorithm", ALGORITHM), ("reward", REWARD)):
        (package / f"{name}.py").write_text(source)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-digend\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder
