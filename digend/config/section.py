"""The base of every table of a job or node file, and the types that both use. Knows no key of either file."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys and infinite numbers are errors; values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
