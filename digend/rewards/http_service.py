"""`http_service`: a reward that a service of yours gives, over HTTP. The bodies are in docs/reward-service.md.

Owns the two forms of a request (JSON with PNG, msgpack with raw pixels) and the check of a reply: another number of
values than samples, or a value that is no number, fails that request's samples and says so; null fails one sample.
Nothing that a service says is believed to be a reward without that check.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from digend.rewards.service_options import ServiceOptions, service_warnings
from digend.rewards.spec import Batch, Reward, RewardSpec, Scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from digend.rewards.service import Outcome, Service

VERSION = 1
CONTENT_TYPES = {"json": "application/json", "msgpack": "application/msgpack"}
SCORE, READY = "/score", "/ready"


class Options(ServiceOptions):
    format: Literal["json", "msgpack"] = Field("json", description="Of bodies, both ways; msgpack carries raw pixels.")
    batch_size: Annotated[int, Field(ge=1, le=1024, description="Samples a request.")] = 1


class HttpService:
    """Samples cut into requests of `batch_size`, asked at the same time."""

    def __init__(self, service: Service, options: Options) -> None:
        self._service = service
        self._options = options

    def score(self, batch: Batch) -> Scores:
        num, size = len(batch.prompts), self._options.batch_size
        rows = [slice(start, min(start + size, num)) for start in range(0, num, size)]
        bodies = [encode_request(batch, each, self._options.format) for each in rows]
        outcomes = self._service.ask_all(SCORE, bodies, lambda done: batch.scored(min(done * size, num)))
        return gather(rows, outcomes, self._options.format)


def encode_request(batch: Batch, rows: slice, form: str) -> bytes:
    """The body that asks for the samples of `rows`."""
    encode = _png_frames if form == "json" else _raw_frames
    samples = [
        {"prompt": prompt, "metadata": dict(metadata), **encode(frames_of(pixels))}
        for prompt, metadata, pixels in zip(batch.prompts[rows], batch.metadata[rows], batch.pixels[rows], strict=True)
    ]
    document = {"version": VERSION, "samples": samples}
    if form == "json":
        return json.dumps(document).encode()
    import msgpack

    packed: bytes = msgpack.packb(document)
    return packed


def frames_of(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """[3, H, W] or [F, 3, H, W] in [0, 1] to uint8 [F, H, W, 3]; an image is one frame."""
    import numpy as np

    frames = pixels[None] if pixels.ndim == 3 else pixels
    return np.ascontiguousarray(np.rint(np.clip(frames, 0, 1) * 255).astype(np.uint8).transpose(0, 2, 3, 1))


def png(frame: NDArray[np.uint8]) -> str:
    """One frame [H, W, 3] as base64 of a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _png_frames(frames: NDArray[np.uint8]) -> dict[str, object]:
    return {"frames": [png(frame) for frame in frames]}


def _raw_frames(frames: NDArray[np.uint8]) -> dict[str, object]:
    return {"shape": list(frames.shape), "pixels": frames.tobytes()}


def gather(rows: Sequence[slice], outcomes: Sequence[Outcome], form: str) -> Scores:
    """All replies in one: what failed has no value and a reason, what a reply leaves out of a part is NaN there."""
    from digend.rewards.service import Reply, ServiceError

    num = rows[-1].stop if rows else 0
    values: list[float | None] = [None] * num
    components: dict[str, list[float]] = {}
    failures: dict[int, str] = {}
    for each, outcome in zip(rows, outcomes, strict=True):
        places = range(each.start, each.stop)
        try:
            if not isinstance(outcome, Reply):
                raise outcome
            scores = read_reply(outcome.content, form, len(places))
        except ServiceError as error:
            failures.update(dict.fromkeys(places, f"got no reward from its service: {error}"))
            continue
        values[each] = scores.values
        failures.update({places[at]: why for at, why in scores.failures.items()})
        for name, part in {**scores.components, "latency_s": [outcome.latency_s] * len(places)}.items():
            components.setdefault(name, [float("nan")] * num)[each] = part
    return Scores(values=values, components=components, failures=failures)


def read_reply(content: bytes, form: str, num_samples: int) -> Scores:
    """A reply's values, parts and reasons. Raises ServiceError for one that does not keep to the schema."""
    from digend.rewards.service import ServiceError

    document = _decoded(content, form)
    if not isinstance(document, dict):
        raise ServiceError(f"the reply is a {type(document).__name__}, not a map")
    values = _numbers(document.get("values"), "values", num_samples, none=True)
    parts = document.get("components", {})
    reasons = document.get("failures", {})
    if not isinstance(parts, dict) or not isinstance(reasons, dict):
        raise ServiceError("components and failures of the reply must be maps")
    return Scores(
        values=values,
        components={
            str(name): [
                value if value is not None else float("nan") for value in _numbers(part, str(name), num_samples)
            ]
            for name, part in parts.items()
        },
        failures=_reasons(reasons, num_samples),
    )


def _decoded(content: bytes, form: str) -> Any:
    from digend.rewards.service import ServiceError

    try:
        if form == "json":
            return json.loads(content)
        import msgpack

        return msgpack.unpackb(content, strict_map_key=False)
    except Exception as error:
        raise ServiceError(f"the reply is no {form}: {error}") from error


def _numbers(values: object, what: str, num_samples: int, *, none: bool = False) -> list[float | None]:
    from digend.rewards.service import ServiceError

    if not isinstance(values, list):
        raise ServiceError(f"{what} of the reply is a {type(values).__name__}, not a list")
    if len(values) != num_samples:
        raise ServiceError(f"the reply has {len(values)} {what} for {num_samples} samples")
    for at, value in enumerate(values):
        if not (none and value is None) and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ServiceError(f"{what}[{at}] of the reply is {str(value)[:40]!r}, not a number")
    try:
        return [None if value is None else float(value) for value in values]
    except OverflowError:
        raise ServiceError(f"{what} of the reply has a number that is too large") from None


def _reasons(reasons: Mapping[object, object], num_samples: int) -> dict[int, str]:
    """Reasons by place; a place comes as text in JSON. What names no sample is left out."""
    named = {str(at): at for at in range(num_samples)}
    return {named[str(place)]: str(why)[:500] for place, why in reasons.items() if str(place) in named}


def build(options: BaseModel, device: str) -> Reward:
    """Waits until the service is ready. Raises ServiceError where it is not, in `ready_s`."""
    from digend.rewards.service import Service

    if not isinstance(options, Options):
        raise TypeError(f"{type(options).__name__} are no options of http_service")
    kind = CONTENT_TYPES[options.format]
    service = Service(options, {"Content-Type": kind, "Accept": kind})
    service.wait_until_ready(READY)
    return HttpService(service, options)


spec = RewardSpec(
    name="http_service",
    options=Options,
    builder="digend.rewards.http_service:build",
    cuts_itself=True,
    warnings=service_warnings,
)
