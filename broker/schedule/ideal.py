"""What no schedule of a global step can beat: generator pool and trainer busy from end to end. Without c and y."""

from fractions import Fraction

from broker.schedule.snapshot import Model


def ideal(model: Model, micro_batches: int) -> Fraction:
    """Ticks. x of B micro-batches are made by the generator pool, the rest by the trainer, so that both end together:
    max(x g + B s, (B - x) h + B t); with dedicated scoring s = 0 in it, and no less than B s / n. Without TAG x = B.
    """
    times, num = model.times, micro_batches
    score = 0 if model.servers else times.score
    share = Fraction(num)
    if times.assist is not None:
        balanced = Fraction(num * (times.assist + times.update - score), times.generate + times.assist)
        share = min(max(balanced, Fraction(0)), share)
    generator = share * times.generate + num * score
    trainer = (num - share) * (times.assist or 0) + num * times.update
    scored = Fraction(num * times.score, model.servers) if model.servers else Fraction(0)
    return max(generator, trainer, scored)
