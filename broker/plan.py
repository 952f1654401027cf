"""What a rollout and an evaluation consist of: drawn from the job's seed alone, so that a redo asks for the same.

Owns the draws (prompts, SDE windows, seeds, S_i); knows nothing of workers. Paper section 3.2.1.
"""

from dataclasses import dataclass
from itertools import pairwise

from broker.spec import JobSpec
from digend.rl.prompts import prompts_of_step
from digend.rl.seeds import seed_of, seeds_of
from digend.rl.windows import Window, draw_window, levels, progressive_window, select_timesteps
from digend.wire.tasks import Prompt, SampleRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The samples of one prompt in one rollout; the window (`levels`) is the group's, S_i may be the sample's."""

    prompt: Prompt
    levels: tuple[float, ...]
    samples: tuple[SampleRequest, ...]
    num_pairs: int
    """(sample, timestep) pairs that it adds to Z0, the planned normaliser: after best-of-N, before any failure."""


def plan_rollout(spec: JobSpec, rollout: int) -> tuple[tuple[GroupPlan, ...], ...]:
    """Groups of each of the B micro-batches, in order."""
    chosen = prompts_of_step(len(spec.prompts), spec.prompts_per_rollout, rollout, spec.seed)
    groups = [_group(spec, rollout, spec.prompts[index]) for index in chosen]
    num, total = spec.num_micro_batches, len(groups)
    if spec.partition == "naive":
        edges = [index * total // num for index in range(num + 1)]
    else:
        edges = [*range(0, total, spec.micro_batch_groups), total]
    return tuple(tuple(groups[start:end]) for start, end in pairwise(edges))


def plan_evaluation(spec: JobSpec, num_samples: int) -> tuple[GroupPlan, ...]:
    """One group a prompt, with seeds that depend on neither job seed nor global step."""
    silent = (0.0,) * spec.num_timesteps
    seed = spec.evaluation.seed
    return tuple(
        GroupPlan(
            prompt=prompt,
            levels=silent,
            num_pairs=0,
            samples=tuple(
                SampleRequest(
                    index=index,
                    initial_seed=seed_of("evaluate", seed, prompt.uid, index),
                    noise_seed=seed_of("evaluate-noise", seed, prompt.uid, index),
                    timesteps=(),
                )
                for index in range(num_samples)
            ),
        )
        for prompt in spec.evaluation.prompts
    )


def _group(spec: JobSpec, rollout: int, prompt: Prompt) -> GroupPlan:
    rules, key = spec.rules, (spec.seed, rollout, prompt.uid)
    window = Window(0, spec.num_timesteps) if rules.ode else _window(spec, rollout, prompt)
    indexes, timesteps = range(spec.samples_per_prompt), window.indexes
    initial = seeds_of([0] * len(indexes) if rules.shared_initial_noise else indexes, "initial", *key)
    noise = seeds_of(indexes, "noise", *key)
    samples = tuple(
        SampleRequest(
            index=index,
            initial_seed=initial[index],
            noise_seed=noise[index],
            timesteps=select_timesteps(timesteps, rules.timestep_fraction, rules.timestep_order, *key, index),
        )
        for index in indexes
    )
    # Every sample of a group trains on equally many timesteps, so it does not matter which of them are selected.
    num_trained = len(samples) if rules.best_of_n is None else rules.best_of_n
    return GroupPlan(
        prompt=prompt,
        levels=levels(spec.num_timesteps, window, 0.0 if rules.ode else rules.noise_level),
        samples=samples,
        num_pairs=num_trained * len(samples[0].timesteps),
    )


def _window(spec: JobSpec, rollout: int, prompt: Prompt) -> Window:
    rules = spec.rules
    size, lo, hi = rules.window_size, rules.window_lo, rules.window_hi
    if rules.window_move == "progressive" and size:
        return progressive_window(
            spec.num_timesteps,
            size,
            lo,
            hi,
            rollout * spec.updates_per_rollout,
            rules.window_every,
            roll_back=rules.window_roll_back,
            kernel=rules.kernel,
        )
    key = (spec.seed, rollout) if rules.window_move == "step" else (spec.seed, rollout, prompt.uid)
    return draw_window(spec.num_timesteps, size, lo, hi, *key, kernel=rules.kernel)
