"""`openai_judge`: a vision-language model behind any address that speaks OpenAI's chat completions (vLLM, SGLang, ...).

Owns that form of a request and of its reply; the transport is that of `http_service`, the question that of `judge`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from digend.rewards.http_service import frames_of, png
from digend.rewards.judge import JudgeOptions
from digend.rewards.service_options import ServiceOptions, service_warnings
from digend.rewards.spec import Batch, Reward, RewardSpec, Scores

if TYPE_CHECKING:
    from digend.rewards.service import Outcome, Service

COMPLETIONS, MODELS = "/chat/completions", "/models"


class Options(ServiceOptions, JudgeOptions):
    """`urls` end as the server says, mostly in /v1."""

    model: Annotated[str, Field(min_length=1, description="Name of the model, as the server knows it.")]
    temperature: Annotated[float, Field(ge=0, description="0: the likeliest answer.")] = 0.0


class OpenAiJudge:
    """One request a sample; all frames of a video are in it, in order."""

    def __init__(self, service: Service, options: Options) -> None:
        self._service = service
        self._options = options

    def score(self, batch: Batch) -> Scores:
        bodies = [self._body(batch, at) for at in range(len(batch.prompts))]
        outcomes = self._service.ask_all(COMPLETIONS, bodies, batch.scored)
        answers = [self._read(outcome) for outcome in outcomes]
        return Scores(
            values=[None if isinstance(answer, str) else answer for answer in answers],
            components={"latency_s": [getattr(each, "latency_s", float("nan")) for each in outcomes]},
            failures={at: answer for at, answer in enumerate(answers) if isinstance(answer, str)},
        )

    def _body(self, batch: Batch, at: int) -> bytes:
        pictures = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(frame)}"}}
            for frame in frames_of(batch.pixels[at])
        ]
        question = {"type": "text", "text": self._options.ask(batch.prompts[at])}
        document = {
            "model": self._options.model,
            "temperature": self._options.temperature,
            "max_tokens": self._options.max_new_tokens,
            "messages": [{"role": "user", "content": [*pictures, question]}],
        }
        return json.dumps(document).encode()

    def _read(self, outcome: Outcome) -> float | str:
        from digend.rewards.service import Reply

        if not isinstance(outcome, Reply):
            return f"got no reward from its service: {outcome}"
        try:
            answer = json.loads(outcome.content)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError):
            return f"got no reward from its service: no answer in {outcome.content[:120]!r}"
        return self._options.read(answer) if isinstance(answer, str) else f"got no text but {type(answer).__name__}"


def build(options: BaseModel, device: str) -> Reward:
    """Waits until the server lists its models. Raises ServiceError where it does not, in `ready_s`."""
    from digend.rewards.service import Service

    if not isinstance(options, Options):
        raise TypeError(f"{type(options).__name__} are no options of openai_judge")
    service = Service(options, {"Content-Type": "application/json"})
    service.wait_until_ready(MODELS)
    return OpenAiJudge(service, options)


spec = RewardSpec(
    name="openai_judge",
    options=Options,
    builder="digend.rewards.openai_judge:build",
    cuts_itself=True,
    warnings=service_warnings,
)
