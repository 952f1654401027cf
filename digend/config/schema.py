"""JSON schemas of job files and node files, for editors: `digenctl config schema job|node`.

From the models, so that an editor knows what validation knows, except what several keys must agree on and the options
of plug-ins, which only the plug-ins know.
"""

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from digend.config.job import JobConfig
from digend.config.node import NodeConfig

MODELS: dict[str, type[BaseModel]] = {"job": JobConfig, "node": NodeConfig}
TITLES = {"job": "digend job file", "node": "digend settings: node file, digend.toml"}


def schema_text(kind: str) -> str:
    """The schema of `kind`, one of MODELS, as JSON with a newline at its end."""
    schema = {"$schema": GenerateJsonSchema.schema_dialect, **_toml(MODELS[kind].model_json_schema())}
    return json.dumps({**schema, "title": TITLES[kind]}, indent=2, ensure_ascii=False) + "\n"


def _toml(schema: Any) -> Any:
    """Without null, which TOML does not have: a key without a value is left out."""
    if isinstance(schema, list):
        return [_toml(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _toml(value) for key, value in schema.items() if not (key == "default" and value is None)}
    options = [option for option in made.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        return {**{key: value for key, value in made.items() if key != "anyOf"}, **options[0]}
    return {**made, "anyOf": options} if options else made
