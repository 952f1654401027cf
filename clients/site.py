"""What the settings of this box say for every job that is submitted from it: `[tracking]`.

Owns the finding. Invariant: a key of a job file wins over the same key of the settings, which win over defaults.
"""

import os
from collections.abc import Mapping

from clients.address import KEYS, local_layers
from clients.this_box import given_node
from digend.config.job import JobConfig
from digend.config.layers import Places, gather, variable
from digend.config.tracking import TrackingConfig

TABLE = "tracking"


def site_tracking(environ: Mapping[str, str] = os.environ) -> TrackingConfig | None:
    """None where neither file nor variable says anything. Raises ConfigError where what they say is wrong."""
    places = Places.of(given_node(), environ=environ)
    layers, _ = gather(places, KEYS, environ, more=local_layers(places))
    if not layers.says(TABLE) and not any(name.startswith(f"{variable(TABLE)}__") for name in environ):
        return None
    from digend.config.loader import load_settings

    return load_settings(places, environ, more=local_layers(places)).config.tracking


def with_tracking(config: JobConfig, site: TrackingConfig | None) -> JobConfig:
    """The job, with the site's values where its own file (or --set) says nothing."""
    if site is None:
        return config
    own = {key: getattr(config.tracking, key) for key in config.tracking.model_fields_set}
    return config.model_copy(update={TABLE: site.model_copy(update=own)})
