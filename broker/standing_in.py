"""The trainer in the place of generators that are gone: it encodes, makes what was dealt to them, and scores.

Only where its strategy may make it generate at all, and memory allows; what nobody has claimed it takes by TAG. Ends as
soon as a generator is back. Invariant: a generator that is slow, or away for a restart of the driver, is not gone.
"""

from broker.generation import offer_encoding, offer_left_over
from broker.placement import pool
from broker.portions import offer_scoring
from broker.state import Job, State, Worker
from broker.switching import may_generate


def stands_in(state: State, job: Job, trainer: Worker) -> bool:
    """Whether a trainer does what generators would do, when it is free."""
    if job.spec.deterministic or job.spec.strategy == "never" or not _deserted(state, job):
        return False
    return may_generate(state, job, trainer)


def offer_standing_in(state: State, job: Job, trainer: Worker) -> bool:
    if not stands_in(state, job, trainer):
        return False
    scored = job.spec.scoring == "colocated" and offer_scoring(state, job, trainer)
    return scored or offer_encoding(state, job, trainer) or offer_left_over(state, job, trainer)


def _deserted(state: State, job: Job) -> bool:
    """Whether no generator is left but those that have lost their GPU."""
    return not any(member.able or member.torpid or member.session is None for member in pool(state, job))
