"""Each algorithm makes the reward of handwritten digits rise, on one trainer that does everything.

The driver's part is its own code: what is drawn for a rollout, advantages, selection. Judged by evaluation, which has
fixed seeds and all prompts; nothing else tells a reward that rises from prompts that happen to be easy. The model and
its classifier are made by scripts/assets/digits.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from broker.plan import GroupPlan, plan_evaluation, plan_rollout
from broker.spec import JobSpec
from daemons.driver.jobs import to_spec
from digend.config.job import JobConfig
from digend.config.prompts import PromptRow
from digend.engines.engine import LocalEngine
from digend.rl.advantages import AdvantageRule, normalise_groups
from digend.rl.selection import select_best_of_n
from digend.wire.refs import BlobRef
from digend.wire.tasks import (
    CommitTask,
    EncodeResult,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    GroupRequest,
    PrepareResult,
    ScoreItem,
    ScoreResult,
    ScoreTask,
    UpdateItem,
    UpdateTask,
)
from tests.engines.digits.digit_reward import NAMES, SIZE
from tests.engines.world import JOB, MemoryContext, prepare_task

HERE = Path(__file__).parent / "digits"
SHAPES = Path(__file__).parents[2] / "configs/models/shapes-flux"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Few prompts and few samples want an initial noise for each sample; noise on every timestep wants more of both."""

    sampling: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object]
    samples: int = 12
    num_steps: int = 6
    learning_rate: float = 7e-4


RECIPES = {
    "flow_grpo": Recipe(options={"clip_range": 1e-3, "window_size": 3, "window_range": [0, 4]}),
    "dance_grpo": Recipe(
        sampling={"kernel": "dance_sde", "noise_level": 1.0},
        options={"clip_range": 1e-3, "timestep_order": "first", "shared_initial_noise": False},
        samples=20,
        num_steps=9,
        learning_rate=4e-4,
    ),
    "mix_grpo": Recipe(
        options={
            "clip_range": 1e-3,
            "group_size": 3,
            "iters_per_group": 4,
            "window_range": [0, 4],
            "shared_initial_noise": False,
        }
    ),
    "grpo_guard": Recipe(options={"clip_range": 1e-3, "window_size": 3, "window_range": [0, 4]}),
    "diffusion_nft": Recipe(options={"timestep_fraction": 0.5}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shapes model with another transformer."""
    made = tmp_path_factory.mktemp("digits")
    for part in SHAPES.iterdir():
        if part.name != "transformer":
            (made / part.name).symlink_to(part)
    (made / "transformer").symlink_to(HERE / "transformer")
    return made


def job(folder: Path, algorithm: str) -> tuple[JobConfig, JobSpec]:
    recipe = RECIPES[algorithm]
    config = JobConfig.model_validate(
        {
            "name": "digits",
            "seed": 3,
            "model": {"family": "flux", "path": str(folder), "options": {"max_sequence_length": SIZE}},
            "sampling": {
                "height": SIZE,
                "width": SIZE,
                "num_timesteps": 6,
                "noise_level": 0.7,
                "guidance_scale": 1.0,
                "rollout_batch": 120,
                **recipe.sampling,
            },
            "algorithm": {"name": algorithm, "options": dict(recipe.options)},
            "data": {"prompts": "digits.txt", "prompts_per_rollout": 10, "samples_per_prompt": recipe.samples},
            "training": {"global_steps": recipe.num_steps, "learning_rate": recipe.learning_rate, "update_batch": 120},
            "rewards": [{"name": "digit_reward.py:digit"}],
        }
    )
    return config, to_spec(config, [PromptRow(text=name, metadata={}) for name in NAMES], None, JOB)


class Digits:
    """The trainer, asked for one task after another as a driver would."""

    def __init__(self, config: JobConfig, spec: JobSpec, root: Path) -> None:
        self.spec = spec
        self._context = MemoryContext()
        self._engine = LocalEngine("trainer", "cpu", root / "runs", root / "state", [HERE])
        prepared = self._engine.run(prepare_task(config), self._context)
        encoded = self._engine.run(EncodeTask(job=JOB, incarnation=0, prompts=spec.prompts), self._context)
        assert isinstance(prepared, PrepareResult)
        assert isinstance(encoded, EncodeResult)
        self._sigmas, self._conditions = prepared.sigmas, encoded.conditions

    def evaluated(self, version: int) -> float:
        """Mean reward of deterministic samples with seeds that are always the same."""
        plans = plan_evaluation(self.spec, 8)
        _, rewards = self._drawn(plans, "evaluate", version)
        values = [value for each in rewards.values() for value in each if value is not None]
        assert len(values) == 80
        return sum(values) / len(values)

    def global_step(self, version: int, sign: float = 1.0) -> None:
        """One rollout, one update, one optimizer step. `sign` -1 trains on the wrong advantages."""
        plans = list(chain.from_iterable(plan_rollout(self.spec, version)))
        generated, rewards = self._drawn(plans, "train", version)
        rules = self.spec.rules
        rule = AdvantageRule(std=rules.std, ddof=rules.ddof, eps=rules.eps, clip_max=rules.clip_max)
        advantages = {name: each.advantages for name, each in normalise_groups(rewards, rule).items()}
        assert generated.trajectory is not None
        items = [
            self._item(plan, at, sign * (advantages[plan.prompt.uid][at] or 0.0), generated.trajectory)
            for plan in plans
            for at in select_best_of_n(advantages[plan.prompt.uid], rules.best_of_n)
        ]
        z = sum(len(item.timesteps) for item in items)
        assert z == sum(plan.num_pairs for plan in plans)
        update = UpdateTask(
            job=JOB,
            incarnation=0,
            version=version,
            global_step=version,
            rollout=version,
            micro_batch=0,
            sigmas=self._sigmas,
            items=tuple(items),
            z0=z,
        )
        commit = CommitTask(job=JOB, incarnation=0, version=version, global_step=version, micro_batches=(0,), z0=z, z=z)
        for task in (update, commit):
            self._engine.run(task, self._context)

    def _item(self, plan: GroupPlan, index: int, advantage: float, trajectory: BlobRef) -> UpdateItem:
        return UpdateItem(
            prompt=plan.prompt.uid,
            index=index,
            advantage=advantage,
            timesteps=plan.samples[index].timesteps,
            levels=plan.levels,
            trajectory=trajectory,
            condition=self._conditions[plan.prompt.uid],
        )

    def _drawn(
        self, plans: Sequence[GroupPlan], purpose: str, version: int
    ) -> tuple[GenerateResult, Mapping[str, Sequence[float | None]]]:
        """Samples, and the rewards of each group."""
        what = {"job": JOB, "incarnation": 0, "purpose": purpose, "rollout": version, "micro_batch": 0, "fragment": 0}
        groups = tuple(
            GroupRequest(
                prompt=plan.prompt.uid,
                condition=self._conditions[plan.prompt.uid],
                levels=plan.levels,
                samples=plan.samples,
            )
            for plan in plans
        )
        generated = self._engine.run(
            GenerateTask(**what, version=version, global_step=version, groups=groups, sigmas=self._sigmas),  # type: ignore[arg-type]
            self._context,
        )
        assert isinstance(generated, GenerateResult)
        items = tuple(
            ScoreItem(prompt=plan.prompt, index=sample.index, blob=generated.samples)
            for plan in plans
            for sample in plan.samples
        )
        scored = self._engine.run(ScoreTask(**what, global_step=version, items=items), self._context)  # type: ignore[arg-type]
        assert isinstance(scored, ScoreResult)
        rewards: dict[str, list[float | None]] = {}
        for score in scored.scores:
            rewards.setdefault(score.prompt, []).append(score.reward)
        return generated, rewards


def rise(folder: Path, root: Path, algorithm: str, sign: float = 1.0, num_steps: int | None = None) -> float:
    """By how much the evaluated reward has grown."""
    config, spec = job(folder, algorithm)
    num = spec.num_global_steps if num_steps is None else num_steps
    on = Digits(config, spec, root)
    before = on.evaluated(0)
    assert 0.5 < before < 0.7
    for version in range(num):
        on.global_step(version, sign)
    return on.evaluated(num) - before


@pytest.mark.parametrize("algorithm", list(RECIPES))
def test_the_reward_rises(folder: Path, tmp_path: Path, algorithm: str) -> None:
    assert rise(folder, tmp_path, algorithm) > 0.05


def test_with_the_wrong_sign_it_falls(folder: Path, tmp_path: Path) -> None:
    assert rise(folder, tmp_path, "flow_grpo", sign=-1.0, num_steps=3) < -0.05


def test_without_learning_it_stays(folder: Path, tmp_path: Path) -> None:
    assert abs(rise(folder, tmp_path, "flow_grpo", sign=0.0, num_steps=1)) < 0.005
