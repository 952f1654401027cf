"""How trainers become ranks and cease to be, in words, for the stories of workers. Pure."""

from broker import commands as c
from broker import events as e


def of_ranks(item: c.AskStore | c.AskJoin | c.AskLeave | e.StoreReady | e.RankReady | e.RankBroke) -> tuple[str, str]:
    """(what, cause)."""
    match item:
        case c.AskStore(job=job, epoch=epoch):
            return f"told to open the store of epoch {epoch}", f"it is to be rank 0 of {job}"
        case c.AskJoin(job=job, ranks=ranks):
            return f"told to meet the others as rank {ranks.rank} of {ranks.size}", f"{job}, epoch {ranks.epoch}"
        case c.AskLeave(epoch=epoch, reason=reason):
            return f"told to leave the ranks of epoch {epoch}", reason
        case e.StoreReady(epoch=epoch, store=store):
            return f"opened the store of epoch {epoch}", store
        case e.RankReady(job=job, epoch=epoch):
            return f"met the other ranks, epoch {epoch}", job
        case e.RankBroke(epoch=epoch, error=error):
            return f"failed as a rank of epoch {epoch} ({error.reason})", error.message
