"""The trainer of one job: gradients accumulated micro-batch by micro-batch, then one optimizer step.

Owns the optimizer, the open global step and which micro-batches are in its gradient. What the optimizer works on is at
least float32 (`digend.engines.masters`), whatever the policy is stored in.

Invariants: a micro-batch is in the gradient once or not at all: its passes run into a buffer of their own, which is
added when the last one is done, so a lost blob, a value that is not finite or a cancelled lease leaves the gradient as
it was, at the price of a second gradient's memory. A loss is summed over (sample, timestep) pairs and divided by z0,
so the gradient does not depend on how pairs were dealt (paper sections 3.2.1 and 3.2.2).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import torch
from torch import Tensor

from digend.algorithms.spec import Kept, Objective, PairLosses, Pairs, Velocities, Velocity
from digend.engines.flops import shape_of
from digend.engines.forwards import Forward, largest_pass, plan_forwards
from digend.engines.guard import SpikeGuard
from digend.engines.jobs import Job
from digend.engines.loss_scale import LossScale
from digend.engines.masters import Masters, moving_average
from digend.engines.optimizer import build_optimizer, clip, first_non_finite, learning_rate
from digend.engines.policy import OLD
from digend.engines.protocols import Context, TaskFault
from digend.engines.publishing import publish
from digend.engines.ranks.dealing import ExpertOf
from digend.engines.sums import PairTable, Sums
from digend.engines.trajectories import Trajectory, fetch_trajectories
from digend.engines.widths import Trial, Tried, fastest, gauge_of, traceless, tried, widths_to_try
from digend.models.spec import Condition, expert_at
from digend.rl.seeds import seed_of
from digend.wire.tasks import CommitResult, CommitTask, UpdateItem, UpdateResult, UpdateTask


class Trainer:
    """Gradients and optimizer of one job. `global_step` is the open one: the number of optimizer steps made."""

    def __init__(self, job: Job, objective: Objective, too_wide: dict[str, int] | None = None) -> None:
        """`too_wide`: by job the TSP width at which memory ran out; it outlives the trainer."""
        self._job = job
        self._too_wide = {} if too_wide is None else too_wide
        self._objective = objective
        training = job.config.training
        self.masters = Masters(job.policy)
        self._parameters = list(self.masters.parameters.values())
        self.optimizer = build_optimizer(self._parameters, training)
        self.guard = SpikeGuard(training.spike_factor)
        self.loss_scale = LossScale(job.model.dtype)
        self._checkpoints = training.gradient_checkpointing
        self._ema = moving_average(self.masters, training.ema_decay)
        self._width = None if training.timestep_width == "auto" else training.timestep_width
        self.global_step = 0
        self.applied: tuple[int, ...] = ()

    def update(self, task: UpdateTask, context: Context) -> UpdateResult:
        """Add one micro-batch to the gradient. Raises TaskFault("applied") for one that is in it already, or for
        another global step than the open one; "blob_lost" and "non_finite" with the gradient untouched."""
        self._check_open(task)
        with context.stage("fetch"):
            trajectories = fetch_trajectories(task.items, self._job.algorithm.keeps, self._job.conditions, context)
        width, found = self._width, tuple[Tried, ...]()
        if width is None and any(item.timesteps for item in task.items):
            with context.stage("measure"):
                found = self._measured(task, trajectories, context)
            width = self._width = fastest(found)
        width = 1 if width is None else width
        planned = plan_forwards(task.items, self._job.config.training.update_batch, width)
        table = PairTable(planned)
        with context.stage("update"):
            for forward in planned:
                self._count(task, forward, trajectories)
            passes = self._dealt(task, planned, width)
            remade = self._accumulate(task, passes, trajectories, table, context, 2 * len(found))
        self.global_step = task.global_step
        self.applied = (*self.applied, task.micro_batch)
        drifts = "log_probs" in self._job.algorithm.keeps
        sums = Sums(keep_pairs=self._job.config.keep_pairs, drifts=drifts)
        result = table.pour(sums, task.items, self._job.layout.peers.add_up, remade)
        return replace(result, width=width, tried=tuple((each.width, each.seconds) for each in found))

    def _dealt(self, task: UpdateTask, planned: Sequence[Forward], width: int) -> tuple[Forward, ...]:
        """This rank's passes."""
        largest = largest_pass(task.items, self._job.config.training.update_batch, width)
        return self._job.layout.deal(planned, largest, self._expert_of(task))

    def _measured(self, task: UpdateTask, trajectories: Sequence[Trajectory], context: Context) -> tuple[Tried, ...]:
        """Passes of this micro-batch at each width that fits, of which nothing remains."""
        job, layout, batch = self._job.id, self._job.layout, self._job.config.training.update_batch

        def dealt(width: int) -> tuple[Forward, ...]:
            return self._dealt(task, plan_forwards(task.items, batch, width), width)

        def once(width: int, forward: Forward) -> None:
            with layout.peers.agreed():
                context.progress(next(made), 2 * len(first))
            layout.begin_pass(last=False)
            try:
                self._pass(task, forward, trajectories)
            except torch.OutOfMemoryError:
                self._too_wide[job] = width
                raise
            self.masters.collect()

        made, longest = count(1), max(len(item.timesteps) for item in task.items)
        first = {width: dealt(width)[0] for width in widths_to_try(longest, lambda width: len(dealt(width)) == 1)}
        trials = [
            Trial(width=width, pairs=0 if forward.padding else len(forward.pairs), run=partial(once, width, forward))
            for width, forward in first.items()
        ]
        device, last = self._job.model.device, self._spares(task, dealt(1), trajectories)
        with traceless([*self._parameters, *self._job.policy.parameters.values()], device):
            try:
                found = tuple(tried(trials, layout.peers, gauge_of(device), self._too_wide.get(job)))
            except BaseException as error:
                self._give_up(error, last)
                raise
            layout.give_up(last)
        return found

    def _accumulate(
        self,
        task: UpdateTask,
        passes: Sequence[Forward],
        trajectories: Sequence[Trajectory],
        table: PairTable,
        context: Context,
        begun: int,
    ) -> int:
        """This rank's passes, then the sum over ranks, all of it or nothing. Returns how often it was made again.

        begun: where its progress begins, because passes before it were told as progress of the task.
        """
        layout, remade = self._job.layout, 0
        with self._buffered_gradient(self._spares(task, passes, trajectories)):
            self._run(task, passes, trajectories, table, context, begun)
            while not self.loss_scale.accepts(self._parameters, layout.peers.add_up):
                remade += 1
                self._run(task, passes, trajectories, table, context, begun)
        return remade

    def _run(
        self,
        task: UpdateTask,
        passes: Sequence[Forward],
        trajectories: Sequence[Trajectory],
        table: PairTable,
        context: Context,
        begun: int,
    ) -> None:
        """Passes forward and backward, of the scaled loss."""
        layout, scale = self._job.layout, self.loss_scale.value
        done, total = begun, begun + sum(len(forward.pairs) for forward in passes if not forward.padding)
        for number, forward in enumerate(passes, start=1):
            layout.begin_pass(last=all(later.expert != forward.expert for later in passes[number:]))
            with layout.peers.agreed():
                losses = self._losses(task, forward, trajectories)
                self._check_finite(task.items, forward, losses.losses)
            loss = losses.losses.sum() / task.z0 * scale
            (loss * 0 if forward.padding else loss).backward()  # type: ignore[no-untyped-call]
            self.masters.collect()
            table.add(forward, losses)
            done += 0 if forward.padding else len(forward.pairs)
            context.progress(done, total)
        layout.end_passes(self._parameters, context)

    def commit(self, task: CommitTask, context: Context) -> CommitResult:
        """Scale by z0 / z, clip, step, publish. A gradient that is not finite closes the step without one."""
        if sorted(task.micro_batches) != sorted(self.applied) or (
            self.applied and task.global_step != self.global_step
        ):
            raise TaskFault(
                "applied",
                f"commit of global step {task.global_step} with micro-batches {sorted(task.micro_batches)}, "
                f"but {sorted(self.applied)} of global step {self.global_step} are applied",
            )
        if task.version != self._job.version:
            raise TaskFault("internal", f"commit on version {task.version}, but {self._job.version} is loaded")
        rate = learning_rate(self.optimizer, self._job.config.training, self._job.version)
        with context.stage("optimizer"):
            norm, skipped = self._step(task, rate)
        self.global_step = task.global_step + 1
        scale = self.loss_scale.value
        if skipped is not None:
            return CommitResult(gradient_norm=norm, learning_rate=rate, weights=None, skipped=skipped, loss_scale=scale)
        self._job.version += 1
        weights = publish(self._job, context)
        return CommitResult(gradient_norm=norm, learning_rate=rate, weights=weights, loss_scale=scale)

    def reset(self) -> None:
        """Drop the open global step's gradient and what was applied."""
        self.optimizer.zero_grad(set_to_none=True)
        self.applied = ()

    def _check_open(self, task: UpdateTask) -> None:
        if self.applied and task.global_step != self.global_step:
            raise TaskFault(
                "applied",
                f"micro-batch {task.micro_batch} is of global step {task.global_step}, "
                f"but step {self.global_step} is open with {sorted(self.applied)}",
            )
        if task.micro_batch in self.applied:
            raise TaskFault(
                "applied",
                f"micro-batch {task.micro_batch} of global step {task.global_step} is in the gradient already",
            )

    @contextmanager
    def _buffered_gradient(self, once: Sequence[Callable[[], object]]) -> Iterator[None]:
        """Gradients made inside are added to those before it, or dropped where the body raises; each of `once` runs a
        pass."""
        before = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        try:
            yield
        except BaseException as error:
            self._give_up(error, once)
            self.masters.drop()
            for parameter, gradient in zip(self._parameters, before, strict=True):
                parameter.grad = gradient
            raise
        for parameter, gradient in zip(self._parameters, before, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)

    def _expert_of(self, task: UpdateTask) -> ExpertOf:
        experts = [expert_at(self._job.model, sigma) for sigma in task.sigmas]
        return lambda pair: experts[pair.index]

    def _spares(
        self, task: UpdateTask, passes: Sequence[Forward], trajectories: Sequence[Trajectory]
    ) -> list[Callable[[], object]]:
        """A pass of each expert."""
        spares = {forward.expert: forward for forward in passes}
        return [partial(self._pass, task, each, trajectories) for each in spares.values()]

    def _give_up(self, error: BaseException, once: Iterable[Callable[[], object]]) -> None:
        """What passes have left behind goes, unless the other ranks are not there for it."""
        if not (isinstance(error, TaskFault) and error.error.reason == "rank_lost"):
            self._job.layout.give_up(once)

    def _count(self, task: UpdateTask, forward: Forward, trajectories: Sequence[Trajectory]) -> None:
        """Charge the pairs of one pass, forward and backward, each as a pass of its own would cost."""
        for pair in forward.pairs:
            chain, alone = trajectories[pair.item], Forward(forward.level, (pair,))
            shape = ("update", shape_of(chain.latents, chain.condition))
            once = partial(self._pass, task, alone, trajectories)
            again = partial(self._replay, task, alone, trajectories) if self._checkpoints else None
            self._job.meter.add(shape, 1, once, again)

    def _pass(self, task: UpdateTask, forward: Forward, trajectories: Sequence[Trajectory]) -> None:
        self._losses(task, forward, trajectories).losses.sum().backward()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _replay(self, task: UpdateTask, forward: Forward, trajectories: Sequence[Trajectory]) -> None:
        """The forward pass that gradient checkpointing does once more."""
        pairs = self._pairs(task, forward, trajectories)
        self._velocity([trajectories[pair.item].condition for pair in forward.pairs])(pairs.latents, pairs.sigma)

    def _losses(self, task: UpdateTask, forward: Forward, trajectories: Sequence[Trajectory]) -> PairLosses:
        pairs = self._pairs(task, forward, trajectories)
        conditions = [trajectories[pair.item].condition for pair in forward.pairs]
        return self._objective.losses(self._velocities(self._velocity(conditions), task.version), pairs)

    def _velocities(self, policy: Velocity, version: int) -> Velocities:
        """The policy's, and those of other weights as far as the objective needs them."""

        def reference(latents: Tensor, sigma: Tensor) -> Tensor:
            with self._job.policy.reference():
                return policy(latents, sigma)

        drew = OLD if self._job.algorithm.old_decay is not None else _copy_of(version)

        def old(latents: Tensor, sigma: Tensor) -> Tensor:
            with torch.no_grad(), self._job.policy.using(drew):
                return policy(latents, sigma)

        known = drew in self._job.policy.copies or version == self._job.version
        return Velocities(
            policy=policy,
            reference=reference if self._objective.needs_reference else None,
            old=old if self._objective.needs_old and known else None,
        )

    def _velocity(self, conditions: Sequence[Condition]) -> Velocity:
        job = self._job

        def velocity(latents: Tensor, sigma: Tensor) -> Tensor:
            return job.model.velocity(latents, sigma, conditions, job.config.sampling.guidance_scale, job.shape)

        return velocity

    def _pairs(self, task: UpdateTask, forward: Forward, trajectories: Sequence[Trajectory]) -> Pairs:
        """Stack the pairs' tensors on the model's device."""
        chains = [(trajectories[pair.item], pair) for pair in forward.pairs]
        keeps, device = self._job.algorithm.keeps, self._job.model.device

        def stacked(tensors: Iterable[Tensor]) -> Tensor:
            return torch.stack(list(tensors)).to(device)

        def transitions(kept: Kept) -> Tensor | None:
            return stacked(chain.tensors[kept][pair.position] for chain, pair in chains) if kept in keeps else None

        clean = stacked(chain.tensors["clean"] for chain, _ in chains) if "clean" in keeps else None
        if clean is None:
            latents = stacked(chain.at(pair.index) for chain, pair in chains)
        else:
            latents = self._noised(task, forward, clean)
        return Pairs(
            latents=latents,
            index=torch.tensor([pair.index for pair in forward.pairs], device=device),
            advantage=latents.new_tensor([task.items[pair.item].advantage for pair in forward.pairs]),
            level=forward.level,
            kernel=self._job.config.sampling.kernel,
            sigmas=task.sigmas,
            next_latents=stacked(chain.at(pair.index + 1) for chain, pair in chains) if clean is None else None,
            old_log_prob=transitions("log_probs"),
            old_mean=transitions("means"),
            clean=clean,
            on_policy=task.version == self._job.version,
        )

    def _noised(self, task: UpdateTask, forward: Forward, clean: Tensor) -> Tensor:
        """(1 - sigma) * clean + sigma * noise, [N, ...], at each pair's sigma, with noise of the pair's own seed."""
        seeds = [
            seed_of("renoise", self._job.config.seed, task.rollout, item.prompt, item.index, pair.index)
            for pair in forward.pairs
            for item in (task.items[pair.item],)
        ]
        noise = torch.stack([torch.randn(clean.shape[1:], generator=torch.Generator().manual_seed(s)) for s in seeds])
        sigma = clean.new_tensor([task.sigmas[pair.index] for pair in forward.pairs])
        sigma = sigma.reshape(-1, *[1] * (clean.ndim - 1))
        return (1 - sigma) * clean + sigma * noise.to(clean)

    @staticmethod
    def _check_finite(items: Sequence[UpdateItem], forward: Forward, losses: Tensor) -> None:
        finite = torch.isfinite(losses.detach())
        if not bool(finite.all()):
            pair = forward.pairs[int((~finite).nonzero()[0])]
            item = items[pair.item]
            raise TaskFault(
                "non_finite", f"loss of sample {item.prompt}/{item.index} at timestep {pair.index} is not finite"
            )

    def _step(self, task: CommitTask, rate: float) -> tuple[float, str | None]:
        """The gradient's norm before the clip, and why no step was made (None where one was)."""
        skipped = "Z = 0: no sample was selected" if task.z == 0 else None
        norm = 0.0
        if skipped is None:
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(task.z0 / task.z)
            norm = clip(self._parameters, self._job.config.training.max_grad_norm)
            skipped = first_non_finite(self.masters.parameters, norm) or self.guard.objection(norm)
        if skipped is None:
            self._job.layout.begin_step()
            self._keep_version()
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self._follow()
        self.reset()
        return norm, skipped

    def _keep_version(self) -> None:
        """Copies of the weights that samples still to be trained were drawn with, where the objective asks for them."""
        config, policy, version = self._job.config, self._job.policy, self._job.version
        if not self._objective.needs_old or self._job.algorithm.old_decay is not None:
            return
        longest = max(config.training.updates_per_rollout - 1, int(config.schedule.staleness > 0))
        if longest:
            policy.keep(_copy_of(version))
        policy.copies.pop(_copy_of(version - longest), None)

    def _follow(self) -> None:
        """The averages of the policy take its new values in: the one that samples, and the one that is evaluated."""
        algorithm, num_steps = self._job.algorithm, self._job.version + 1
        if algorithm.old_decay is not None:
            self.masters.blend(OLD, algorithm.old_decay(self._job.algorithm_options, num_steps))
        if self._ema is not None and num_steps % self._job.config.training.ema_interval == 0:
            self._ema.optimization_step = num_steps
            self._ema.step(self._parameters)
        self.masters.write_back()


def _copy_of(version: int) -> str:
    """The name of the copy of a version's weights."""
    return f"version {version}"
