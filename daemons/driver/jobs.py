"""From a job file to what the core knows of the job. Torch-free; must not know sockets or the journal."""

from collections.abc import Sequence
from dataclasses import fields

from broker.spec import EvalRules, JobSpec, RolloutRules
from digend.algorithms.spec import SamplingRules
from digend.config.job import JobConfig
from digend.config.prompts import PromptRow
from digend.plugins import algorithm_spec, validate_options
from digend.rewards.labels import labels_of
from digend.wire.tasks import Prompt

RATIO_RULES = {"float32": 1e-6, "float64": 1e-6}
"""What |log ratio| may be before the first update on a rollout, by the model's type; of half precision nothing is known
but that the clip range has to be far larger."""


def to_spec(
    config: JobConfig, prompts: Sequence[PromptRow], eval_prompts: Sequence[PromptRow] | None, job_id: str
) -> JobSpec:
    """The job as the core runs it. Raises ValueError that names the key or option at fault.

    Prompts are known as p0000.., those of evaluation as e0000..; where evaluation has none of its own, it
    uses the training prompts under their own uids, so that nothing is encoded twice.
    """
    training = _prompts("p", prompts)
    schedule, data = config.schedule, config.data
    return JobSpec(
        id=job_id,
        name=config.name,
        config=config.model_dump_json(),
        seed=config.seed,
        num_global_steps=config.training.global_steps,
        updates_per_rollout=config.training.updates_per_rollout,
        prompts=training,
        prompts_per_rollout=data.prompts_per_rollout,
        samples_per_prompt=data.samples_per_prompt,
        micro_batch_groups=schedule.micro_batch_groups,
        partition=schedule.partition,
        strategy=schedule.strategy,
        tag_memory=schedule.tag_memory,
        staleness=schedule.staleness,
        scoring=schedule.scoring,
        score_samples=schedule.score_samples,
        generators=None if schedule.generators is None else tuple(schedule.generators),
        nodes=None if schedule.nodes is None else tuple(schedule.nodes),
        num_timesteps=config.sampling.num_timesteps,
        rules=_rules(config),
        evaluation=_evaluation(config, training if eval_prompts is None else _prompts("e", eval_prompts)),
        checkpoint_every=config.checkpoint.every,
        deterministic=config.training.deterministic,
        lease_s=schedule.lease_s,
        score_lease_s=schedule.score_lease_s,
        reward_retries=schedule.reward_retries,
        task_retries=schedule.task_retries,
        max_skipped_steps=config.training.max_skipped_steps,
        on_skipped=config.training.on_skipped,
        aggregation=config.aggregation,
        ratio_rule=RATIO_RULES.get(config.model.dtype),
        reward_weights=tuple(
            zip(labels_of(each.name for each in config.rewards), [each.weight for each in config.rewards], strict=True)
        ),
        keep_pairs=config.keep_pairs,
        ranks=config.training.ranks,
        replicas=config.training.num_replicas,
        rank_timeout_s=config.training.rank_timeout_s,
        publish_timeout_s=config.training.publish_timeout_s,
    )


def _prompts(prefix: str, rows: Sequence[PromptRow]) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(uid=f"{prefix}{index:04d}", text=row.text, metadata=dict(row.metadata)) for index, row in enumerate(rows)
    )


def _rules(config: JobConfig) -> RolloutRules:
    spec = algorithm_spec(config.algorithm.name)
    options = validate_options(spec, config.algorithm.options, "algorithm.options")
    drawn = spec.rules(options, config)
    return RolloutRules(
        noise_level=config.sampling.noise_level,
        kernel=config.sampling.kernel,
        quorum=config.schedule.quorum,
        **{each.name: getattr(drawn, each.name) for each in fields(SamplingRules)},
    )


def _evaluation(config: JobConfig, prompts: tuple[Prompt, ...]) -> EvalRules:
    rules = config.eval
    return EvalRules(
        prompts=prompts,
        samples=rules.samples,
        during_samples=rules.during_samples,
        every=rules.every,
        seed=rules.seed,
        enabled=rules.enabled,
    )
