"""One file of a person, checked alone: a job file or a node file, whichever it looks like."""

from digend.config.errors import ConfigError, Problem
from digend.config.job import JobConfig
from digend.config.loader import load_node
from digend.config.node import NodeConfig
from digend.config.source import read_source
from digend.job_check import read_job


def problems_of(path: str) -> list[Problem]:
    """All that is wrong with it."""
    try:
        keys = read_source(path).table.keys()
        job, node = (len(keys & model.model_fields.keys()) for model in (JobConfig, NodeConfig))
        read_job(path) if job > node else load_node(path)
    except ConfigError as error:
        return list(error.problems)
    return []
