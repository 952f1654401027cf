"""What a judge in words is asked, and how its answer becomes a number. Torch-free.

Shared by `openai_judge` (an address) and `local_judge` (a folder). An answer in which the pattern finds no number, or
one outside the range, is a failure with the answer in it.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, model_validator

QUESTION = (
    "Rate how well the picture shows this description, and how good it looks, from 0 (not at all) to 5 (perfectly).\n"
    "Description: {prompt}\n"
    'End your answer with a line of the form "Final Score: NUMBER".'
)
PATTERN = r"Final Score:\D*?(-?\d+(?:\.\d+)?)"


class JudgeOptions(BaseModel):
    """The question and the form of the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    question: str = Field(QUESTION, description="{prompt} stands for the prompt.")
    pattern: str = Field(
        PATTERN, description="Regular expression whose first group is the number; its last match counts."
    )
    lowest: float = Field(0.0, description="Least number that is an answer.")
    highest: float = Field(5.0, description="Largest; the reward is the number divided by it.")
    max_new_tokens: int = Field(256, ge=1, description="Longest answer.")

    @model_validator(mode="after")
    def _is_usable(self) -> JudgeOptions:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"pattern {self.pattern!r}: {error}") from error
        if groups < 1:
            raise ValueError(f"pattern {self.pattern!r} has no group for the number")
        if not self.lowest < self.highest or self.highest == 0:
            raise ValueError(f"highest ({self.highest:g}) must be more than lowest ({self.lowest:g}), and not 0")
        if "{prompt}" not in self.question:
            raise ValueError("question has no {prompt}")
        return self

    def ask(self, prompt: str) -> str:
        return self.question.replace("{prompt}", prompt)

    def read(self, answer: str) -> float | str:
        """The reward, or why there is none."""
        found = re.findall(self.pattern, answer)
        told = f"the judge said {answer.strip()[-120:]!r}"
        if not found:
            return f"got no number: {told}"
        last = found[-1][0] if isinstance(found[-1], tuple) else found[-1]
        try:
            number = float(last)
        except ValueError:
            return f"got {last!r} for a number: {told}"
        if not self.lowest <= number <= self.highest:
            return f"got {number:g}, not from {self.lowest:g} to {self.highest:g}: {told}"
        return number / self.highest
