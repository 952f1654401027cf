"""The ranks of a trainer once they have met: process groups, the device mesh, and how an error reaches all of them.

Owns torch.distributed's state of this process: a group for tensors on the devices (NCCL on CUDA, gloo on the CPU), a
gloo group beside it for what the ranks say to each other, and the mesh of replicas and shards. Must not know tasks.

Invariants: every wait ends, with the answer or after `timeout_s` with an error that `is_loss` knows. An error of one
rank inside `agreed` is raised by all: rank 0's cancelled lease too, while another rank that is told to stop is lost to
the rest. Any other error leaves the ranks out of step, so whoever meets one closes (`excuses` tells them apart).
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import msgpack
import torch
from torch import Tensor, distributed
from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.ranks import Ranks

REPLICATE, SHARD = "replicate", "shard"
FIRST_POLL_S, LONGEST_POLL_S = 0.001, 0.02
LOST = "lost"
"""Key of the rank that gave up."""
PATIENCE_S = 3600.0
"""What loading a model may take on one rank longer than on another."""


def forget_failure() -> None:
    """torch numbers a process's groups, and a beginning that failed leaves it a number ahead of its peers, which then
    look for each other under other names for ever. Only the end of a group of all begins the count anew."""
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    distributed.destroy_process_group()


class Joined:
    """The peers of one epoch; they are there when the constructor returns. Raises RuntimeError after `timeout_s`, or
    TaskFault("rank_lost") then or once this process is to leave.

    left: set from any thread once this process is to leave.
    """

    def __init__(self, ranks: Ranks, store: Store, device: str, left: threading.Event) -> None:
        self.rank, self.size, self.replicas = ranks.rank, ranks.size, ranks.replicas
        self.store = PrefixStore(f"ranks/{ranks.epoch}", store)
        self.shards = self.size // self.replicas
        self._left = left
        self._num_agreements = 0
        self._excused: BaseException | None = None
        timeout = timedelta(seconds=ranks.timeout_s)
        self.store.set_timeout(timeout)
        kind = torch.device(device).type
        if kind == "cuda":
            torch.cuda.set_device(device)
        self._await_everybody(ranks.timeout_s)
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        distributed.init_process_group(backend, store=self.store, rank=self.rank, world_size=self.size, timeout=timeout)
        self._side = distributed.new_group(backend="gloo", timeout=timeout)
        shape = (self.replicas, self.shards)
        self.mesh: DeviceMesh = init_device_mesh(kind, shape, mesh_dim_names=(REPLICATE, SHARD))
        distributed.barrier(group=self._side)

    def _await_everybody(self, limit_s: float) -> None:
        """Until every rank is here. torch's own meeting cannot be interrupted, so it begins last."""
        here = [f"here/{rank}" for rank in range(self.size)]
        self.store.set(here[self.rank], "")
        try:
            self.wait(here, limit_s)
        except TaskFault as fault:
            absent = [str(rank) for rank, key in enumerate(here) if not self.store.check([key])]
            raise TaskFault("rank_lost", f"{fault}; not there: rank {', '.join(absent)}") from fault

    def close(self) -> None:
        """Leave the others: whoever waits for this rank hears of it. Waits for nobody."""
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def excuses(self, error: BaseException | None) -> bool:
        """Whether the ranks are in step in spite of this error, or of what it was made of."""
        while error is not None and error is not self._excused:
            error = error.__cause__
        return error is not None

    def say_lost(self) -> None:
        """To those that wait for this rank in the store."""
        with suppress(RuntimeError):
            self.store.set(LOST, str(self.rank))

    @staticmethod
    def is_loss(error: BaseException) -> bool:
        """Whether this is how torch.distributed says that another rank is gone, or did not answer in time."""
        if isinstance(error, TaskFault):
            return error.error.reason == "rank_lost"
        if isinstance(error, distributed.DistError):
            return True
        text = str(error)
        return isinstance(error, RuntimeError) and any(word in text for word in ("gloo", "NCCL", "Connection closed"))

    # ------------------------------------------------------------------------------------------------ agreement

    @contextmanager
    def agreed(self, *, patient: bool = False) -> Iterator[None]:
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            if self.is_loss(raised):
                raise
            error = raised
        self._agree(error, patient=patient)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Around a whole task: what it raises where no rank waits for another, on one rank or on all, all raise."""
        error: Exception | None = None
        try:
            yield
        except TaskFault as raised:
            if self.is_loss(raised) or self.excuses(raised) or isinstance(raised.__cause__, torch.OutOfMemoryError):
                raise  # The others know, or wait for this rank in the middle of a pass.
            error = raised
        self._agree(error, patient=True)

    def _agree(self, error: Exception | None, *, patient: bool) -> None:
        if patient:
            self._await_all()
        blamed = self._blamed(error is not None)
        if blamed is None:
            return
        words = self._broadcast(_words(error), blamed)
        answer = error if error is not None and blamed == self.rank else _error_of(blamed, words)
        if not self.is_loss(answer) and not (blamed and isinstance(answer, Cancelled)):
            self._excused = answer
        raise answer

    def _blamed(self, failed: bool) -> int | None:
        """The lowest rank that failed."""
        word = torch.tensor([self.size - self.rank if failed else 0])
        distributed.all_reduce(word, distributed.ReduceOp.MAX, group=self._side)
        return self.size - int(word) if int(word) else None

    def _await_all(self) -> None:
        """Until every rank has come to this place."""
        self._num_agreements += 1
        key = f"patient/{self._num_agreements}"
        self.store.set(f"{key}/{self.rank}", "")
        keys = [f"{key}/{rank}" for rank in range(self.size)]
        self.wait(keys, PATIENCE_S)

    def wait(self, keys: list[str], limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until the store has all of them. Raises TaskFault("rank_lost") after `limit_s`, or once this process leaves.

        It asks again and again, because torch's own wait cannot be interrupted and complains each time it ends.
        """
        deadline, pause = time.monotonic() + limit_s, FIRST_POLL_S
        while not self.store.check(keys):
            if self.store.check([LOST]):
                raise TaskFault("rank_lost", f"rank {self.store.get(LOST).decode()} has given up")
            if self._left.is_set():
                raise TaskFault("rank_lost", f"rank {self.rank} was told to leave")
            if time.monotonic() > deadline:
                raise TaskFault("rank_lost", f"rank {self.rank} has waited {limit_s:g} s for the others")
            meanwhile()
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_S)

    # ------------------------------------------------------------------------------------------------ exchange

    def add_up(self, table: Tensor) -> Tensor:
        distributed.all_reduce(table, group=self._side)
        return table

    def share(self, data: bytes) -> bytes:
        return self._broadcast(data, 0)

    def collect(self, data: bytes) -> list[bytes]:
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(data)
        self.add_up(lengths)
        if self.rank:
            if data:
                distributed.send(_as_tensor(data), 0, group=self._side)
            return []
        return [data, *(self._received(rank, int(lengths[rank])) for rank in range(1, self.size))]

    def _received(self, rank: int, length: int) -> bytes:
        content = torch.empty(length, dtype=torch.uint8)
        if length:
            distributed.recv(content, rank, group=self._side)
        return content.numpy().tobytes()

    def _broadcast(self, data: bytes, source: int) -> bytes:
        """The bytes of rank `source`; those of the others are ignored."""
        length = torch.tensor([len(data)])
        distributed.broadcast(length, source, group=self._side)
        content = _as_tensor(data) if self.rank == source else torch.empty(int(length), dtype=torch.uint8)
        if int(length):
            distributed.broadcast(content, source, group=self._side)
        return data if self.rank == source else content.numpy().tobytes()


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _words(error: Exception | None) -> bytes:
    if isinstance(error, TaskFault):
        fields = (error.error.reason, error.error.message, error.error.retry)
    elif isinstance(error, Cancelled):
        fields = ("cancelled", str(error), False)
    elif isinstance(error, torch.OutOfMemoryError):
        fields = ("out_of_memory", str(error).splitlines()[0], True)
    else:
        fields = ("internal", f"{type(error).__name__}: {error}", False)
    packed: bytes = msgpack.packb(fields)
    return packed


def _error_of(rank: int, packed: bytes) -> Exception:
    reason, message, retry = msgpack.unpackb(packed)
    if reason != "cancelled":
        return TaskFault(reason, f"rank {rank}: {message}", retry=retry)
    return TaskFault("rank_lost", f"rank {rank} was told to stop") if rank else Cancelled(message)
