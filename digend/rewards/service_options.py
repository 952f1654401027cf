"""Options of every reward that asks a service over HTTP, and what is worth a warning about them. Torch-free.

Owns addresses, deadlines, concurrency and where a key comes from. A key is never in a job file: `key_variable` names
the environment variable of the process that scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from digend.config.job import JobConfig

MAX_CONCURRENCY = 256


class ServiceOptions(BaseModel):
    """Where the service is and how long it may take. Times are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    urls: Annotated[
        list[str], Field(min_length=1, description="Addresses, http:// or https://; each takes its share of requests.")
    ]
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY, description="Requests at a time to each address.")] = 4
    timeout_s: Annotated[float, Field(gt=0, description="One request, from connecting to the last byte.")] = 20.0
    deadline_s: Annotated[
        float,
        Field(gt=0, description="One request with all its tries and waits; then its samples have failed."),
    ] = 45.0
    backoff_s: Annotated[
        float, Field(gt=0, description="An address that failed is left alone for this long, doubled each time.")
    ] = 0.5
    max_backoff_s: Annotated[float, Field(gt=0, description="Longest such rest.")] = 8.0
    ready_s: Annotated[
        float, Field(ge=0, description="How long to wait at the start for an address that is ready; 0: do not ask.")
    ] = 30.0
    key_variable: str = Field(
        "", description="Environment variable, of the process that scores, with a key that is sent as bearer token."
    )

    @field_validator("urls")
    @classmethod
    def _are_addresses(cls, urls: list[str]) -> list[str]:
        for url in urls:
            if not _is_address(url):
                raise ValueError(f"{url!r} is no address: expected one such as http://127.0.0.1:8900")
        return [url.rstrip("/") for url in urls]

    @model_validator(mode="after")
    def _agree(self) -> ServiceOptions:
        if self.deadline_s < self.timeout_s:
            raise ValueError(f"deadline_s ({self.deadline_s:g}) is less than timeout_s ({self.timeout_s:g})")
        return self


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def service_warnings(options: BaseModel, config: JobConfig) -> Iterator[tuple[str, str]]:
    """(option or "", what is amiss): plain text off this machine, a deadline that a lease does not outlive, waiting."""
    if not isinstance(options, ServiceOptions):
        raise TypeError(f"{type(options).__name__} are no options of a service")
    for url in options.urls:
        if url.startswith("http://") and not is_loopback(urlsplit(url).hostname or ""):
            yield "urls", f"{url} is plain text: pictures and prompts can be read on the way; use https"
    lease_s = config.schedule.score_lease_s
    if options.deadline_s >= lease_s:
        yield (
            "deadline_s",
            f"{options.deadline_s:g} s is no less than schedule.score_lease_s ({lease_s:g} s): a service "
            "that hangs costs the process, not just the samples",
        )
    if config.schedule.scoring == "colocated":
        yield "", 'generators wait for its replies; schedule.scoring = "dedicated" overlaps them with generation'


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by name or number."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
