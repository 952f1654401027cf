"""Who generates what: claiming micro-batches, dealing fragments (GAP), encoding prompts, staging weights.

Every function answers whether it gave the worker a lease. A micro-batch is stamped with one policy version when it is
claimed; all its fragments and redos keep that stamp, or the whole is made again.
"""

from collections import Counter

from broker import requests
from broker.broadcasts import convene
from broker.commands import StageWeights
from broker.estimates import speeds
from broker.leasing import grant
from broker.microbatch import Fragment, MicroBatch, Phase, Stamp
from broker.placement import members, pool, serves, trainer_of
from broker.state import Job, State, Worker
from broker.switching import offloads
from broker.work import split, whole
from digend.wire.tasks import EncodeTask, Prompt

_ENCODE_CHUNK = 32
_MOST_NEIGHBOURS = 8
"""Workers that one is told to pull pieces of a version from."""


def prepared(job: Job, worker: Worker) -> bool:
    incarnation = worker.prepared.get(job.id)
    return incarnation == job.incarnation if worker.role == "trainer" else incarnation is not None


def holds(job: Job, worker: Worker, stamp: Stamp) -> bool:
    """Whether the worker can roll out under a version: a trainer has its own, a generator what it has staged."""
    if worker.role == "trainer":
        return prepared(job, worker) and stamp[1] == job.version
    return (job.id, stamp) in worker.staged


def will_hold(job: Job, stamp: Stamp, worker: Worker) -> bool:
    """Whether a generator holds a version or is staging it."""
    weights = job.published.get(stamp[1])
    coming = weights is not None and weights.incarnation == stamp[0]
    return holds(job, worker, stamp) or (coming and (job.id, stamp) in worker.staging)


def stage_weights(state: State, job: Job) -> None:
    """Tell generators of the newest version where they lack it; they pull it while they work."""
    weights = job.published.get(job.version)
    if weights is None:
        return
    key = (job.id, (weights.incarnation, weights.version))
    asked: list[tuple[Worker, str]] = []
    for worker in members(state, job):
        if worker.role != "generator" or key in worker.staged or key in worker.staging:
            continue
        if not serves(state, job, worker):
            continue
        if worker.session is not None and prepared(job, worker) and worker.stage_from_ns <= state.now:
            worker.staging[key] = state.now
            asked.append((worker, worker.session))
    if not asked:
        return
    places = convene(state, job, weights, [worker for worker, _ in asked])
    having = [each for each in state.workers.values() if each.able and (key in each.staged or key in each.staging)]
    for worker, session in asked:
        neighbours, place = _neighbours(having, worker), places.get(worker.name)
        state.out.append(StageWeights(session=session, weights=weights, workers=neighbours, broadcast=place))
    trainer = trainer_of(state, job)
    if places and trainer is not None and trainer.session is not None:
        command = StageWeights(session=trainer.session, weights=weights, broadcast=places[trainer.name])
        state.out.append(command)


def _neighbours(having: list[Worker], worker: Worker) -> tuple[str, ...]:
    """Addresses of those that follow it in the circle of all who stage a version or have done so, a few of them."""
    at = having.index(worker) if worker in having else -1
    circle = having[at + 1 :] + having[: max(at, 0)]
    return tuple(each.hello.data for each in circle[:_MOST_NEIGHBOURS])


def offer_encoding(state: State, job: Job, worker: Worker) -> bool:
    """Each prompt is encoded once, by whichever generator comes first."""
    missing = job.unencoded[:_ENCODE_CHUNK]
    if not missing:
        return False
    del job.unencoded[:_ENCODE_CHUNK]
    task = EncodeTask(job=job.id, incarnation=job.incarnation, prompts=tuple(missing))
    lease = grant(state, job, worker, "encode", task)
    job.encoding.update((prompt.uid, lease.id) for prompt in missing)
    return True


def look_for_prompts(job: Job) -> None:
    """Bring `unencoded` up to date, where micro-batches were opened or embeddings lost since it was last looked for."""
    seen = (len(job.rollout), job.global_step, job.evaluation is None)
    if job.unencoded_of != seen:
        job.unencoded, job.unencoded_of = _wanted_prompts(job), seen


def _wanted_prompts(job: Job) -> list[Prompt]:
    """Prompts that are about to be used and are neither encoded nor being so."""
    batches = job.open_batches()
    prompts = {group.prompt.uid: group.prompt for batch in batches for group in batch.groups}
    return [prompt for uid, prompt in prompts.items() if uid not in job.conditions and uid not in job.encoding]


def encoded(job: Job, batch: MicroBatch) -> bool:
    return job.conditions.keys() >= batch.prompts


def offer_generation(state: State, job: Job, worker: Worker) -> bool:
    """Dealt fragments first, then the evaluation, then a new micro-batch, then what a slower worker has not begun."""
    return not without_room(state, job, worker) and (
        _offer_dealt(state, job, worker)
        or offer_evaluation(state, job, worker)
        or (_claim(state, job, worker) and _offer_dealt(state, job, worker))
        or _steal(state, job, worker)
    )


def without_room(state: State, job: Job, worker: Worker) -> bool:
    """It cannot keep more tensors, and others of the job work or can, so that some of them will be freed.

    Where nobody else can go on, what it has is not enough for them: it makes more all the same, or the job would stand.
    """
    if not worker.full:
        return False
    others = any(lease.job == job.id and lease.worker != worker.name for lease in state.leases.values())
    return others or bool(job.uq) or step_complete(job)


def step_complete(job: Job) -> bool:
    """All micro-batches of the open global step are accumulated (or had no sample that survived)."""
    found = False
    for batch in reversed(job.rollout):  # what is not applied yet is mostly at its end
        if batch.global_step == job.global_step:
            if batch.phase is not Phase.APPLIED:
                return False
            found = True
    return found


def offer_evaluation(state: State, job: Job, worker: Worker) -> bool:
    evaluation = job.evaluation
    if evaluation is None or not evaluation.unclaimed:
        return False
    # A restarted trainer has the same weights under a new incarnation.
    stamp = evaluation.stamp if holds(job, worker, evaluation.stamp) else job.stamp
    if not holds(job, worker, stamp):
        return False
    batch = next((batch for batch in evaluation.unclaimed if encoded(job, batch)), None)
    if batch is None:
        return False
    evaluation.unclaimed.remove(batch)
    fragment = _claim_whole(batch, stamp, worker)
    return _send(state, job, worker, batch, fragment, "evaluate")


def claimable(job: Job) -> MicroBatch | None:
    """The next micro-batch nobody has claimed, once its prompts are encoded. None between two rollouts.

    One of the next global step is stale when it is made now (TCSS): at most `stale_quota` are.
    """
    if job.at_border:
        return None
    batch = next((batch for batch in job.unclaimed if encoded(job, batch)), None)
    if batch is None or batch.pinned or not ahead(job, batch):
        return batch
    if job.stop is not None:
        return None  # it would not be trained on
    return None if job.spec.deterministic or num_stale(job) >= job.spec.stale_quota else batch


def num_stale(job: Job) -> int:
    """Micro-batches of the next rollout that are claimed, so with a version older than they will be trained on."""
    return sum(batch.stamp is not None and ahead(job, batch) for batch in job.rollout)


def ahead(job: Job, batch: MicroBatch) -> bool:
    """Whether the micro-batch belongs to the rollout after the one being trained on."""
    return batch.purpose == "train" and batch.rollout > job.global_step // job.spec.updates_per_rollout


def offer_assistance(state: State, job: Job, trainer: Worker) -> bool:
    """TAG: the trainer generates one whole micro-batch."""
    batch = claimable(job)
    if batch is None or not holds(job, trainer, job.rollout_stamp):
        return False
    job.unclaimed.remove(batch)
    job.assisted += 1
    fragment = _claim_whole(batch, job.rollout_stamp, trainer)
    return _send(state, job, trainer, batch, fragment, "generate" if job.colocated else "assist")


def offer_probe(state: State, job: Job, trainer: Worker) -> bool:
    """One sample of the next micro-batch, to see what TAG takes; its others are dealt to the generators.

    Where no generator has the version, or will have it, the trainer makes all of it.
    """
    batch = claimable(job)
    if batch is None:
        return False
    job.probed_at = job.global_step
    for stamp in (job.rollout_stamp, job.stamp):
        able = [each for each in pool(state, job) if each.able and will_hold(job, stamp, each)]
        if able and holds(job, trainer, stamp):
            return _probe(state, job, trainer, batch, stamp, able)
    return offer_assistance(state, job, trainer)


def _probe(state: State, job: Job, trainer: Worker, batch: MicroBatch, stamp: Stamp, able: list[Worker]) -> bool:
    job.unclaimed.remove(batch)
    batch.phase, batch.stamp = Phase.CLAIMED, stamp
    shares = split(job.spec.partition, batch.sizes, _speeds(job, _least_loaded_first(job, able)), first=1)
    probe = Fragment(index=0, share=((0, (0,)),), worker=trainer.name)
    others = [Fragment(index=at, share=share, worker=name) for at, (name, share) in enumerate(shares.items(), start=1)]
    batch.fragments = [probe, *others]
    job.waiting.extend((batch, fragment) for fragment in others)
    return _send(state, job, trainer, batch, probe, "assist")


def _claim_whole(batch: MicroBatch, stamp: Stamp, worker: Worker) -> Fragment:
    batch.phase, batch.stamp = Phase.CLAIMED, stamp
    fragment = Fragment(index=0, share=whole(batch.sizes), worker=worker.name)
    batch.fragments = [fragment]
    return fragment


def _claim(state: State, job: Job, worker: Worker) -> bool:
    """Deal the next micro-batch over all generators that hold its version."""
    batch = claimable(job)
    if batch is None:
        return False
    stamp = batch.pinned or (job.rollout_stamp if holds(job, worker, job.rollout_stamp) else job.stamp)
    if not holds(job, worker, stamp):
        return False
    everyone = pool(state, job)
    able = [each for each in everyone if holds(job, each, stamp) and each.able]
    if job.spec.deterministic and len(able) < len(everyone):
        return False  # the cut decides which samples share a forward pass: wait for the whole pool
    if switching(state, job, stamp):
        return False
    job.unclaimed.remove(batch)
    batch.phase, batch.stamp = Phase.CLAIMED, stamp
    if not job.spec.deterministic:
        able = _least_loaded_first(job, [each for each in able if not each.full] or able)
    shares = split(job.spec.partition, batch.sizes, _speeds(job, able))
    batch.fragments = [
        Fragment(index=index, share=share, worker=name) for index, (name, share) in enumerate(shares.items())
    ]
    job.waiting.extend((batch, fragment) for fragment in batch.fragments)
    return True


def _least_loaded_first(job: Job, workers: list[Worker]) -> list[Worker]:
    """What cannot be cut evenly goes to the first: with fewer samples than workers, micro-batches take turns."""
    dealt = Counter(fragment.worker for _, fragment in job.waiting)
    return sorted(workers, key=lambda worker: dealt[worker.name] + (worker.lease is not None))


def switching(state: State, job: Job, stamp: Stamp) -> bool:
    """Whether a claim is to wait for generators that still stage its version, so that they get their share."""
    if state.now >= job.switch_until_ns:
        return False
    key = (job.id, stamp)
    return any(key in worker.staging and worker.able for worker in pool(state, job))


def _speeds(job: Job, workers: list[Worker]) -> dict[str, float]:
    if job.spec.deterministic:
        return {worker.name: 1.0 / len(workers) for worker in workers}
    return speeds({worker.name: worker.generation for worker in workers})


def _offer_dealt(state: State, job: Job, worker: Worker) -> bool:
    """Its own share first, then what nobody is left for."""
    for owner in (worker.name, None):
        for entry in job.waiting:
            if entry[1].worker == owner and _able_to_make(job, worker, entry[0]):
                return _make_waiting(state, job, worker, entry)
    return False


def _able_to_make(job: Job, worker: Worker, batch: MicroBatch) -> bool:
    return batch.stamp is not None and holds(job, worker, batch.stamp) and encoded(job, batch)


def _make_waiting(state: State, job: Job, worker: Worker, entry: tuple[MicroBatch, Fragment]) -> bool:
    job.waiting.remove(entry)
    return _send(state, job, worker, *entry, _label(entry[0]))


def offer_left_over(state: State, job: Job, trainer: Worker) -> bool:
    """What was dealt to generators, made by the trainer."""
    for batch, fragment in job.waiting:
        if _able_to_make(job, trainer, batch):
            job.waiting.remove((batch, fragment))
            return _send(state, job, trainer, batch, fragment, "evaluate" if batch.purpose == "evaluate" else "assist")
    return False


def _label(batch: MicroBatch) -> str:
    return "evaluate" if batch.purpose == "evaluate" else "generate"


def _steal(state: State, job: Job, worker: Worker) -> bool:
    """At the tail an idle generator takes a fragment that its worker has not begun."""
    if job.spec.deterministic:
        return False
    for entry in reversed(job.waiting):
        if _able_to_make(job, worker, entry[0]):
            return _make_waiting(state, job, worker, entry)
    return False


def _send(state: State, job: Job, worker: Worker, batch: MicroBatch, fragment: Fragment, label: str) -> bool:
    fragment.worker = worker.name
    batch.assisted = label == "assist" and fragment.num_samples == sum(batch.sizes)
    fragment.conditions = {
        batch.groups[at].prompt.uid: job.conditions[batch.groups[at].prompt.uid].digest for at, _ in fragment.share
    }
    offload = worker.role == "trainer" and label != "evaluate" and offloads(state, job, worker)
    worker.offloaded = worker.offloaded or offload
    task = requests.generate(job, batch, fragment, assist=label == "assist", offload=offload)
    fragment.lease = grant(state, job, worker, label, task, batch, fragment).id
    return True
