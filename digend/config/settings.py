"""The settings of a node from its layers, by pydantic-settings: each layer is a source.

Imported where settings are validated, because pydantic-settings takes a while to import. Knows nothing of files.
Invariant: whatever is refused is blamed on the layer that said it.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from digend.config.agreement import node_complaints
from digend.config.checking import problems_of
from digend.config.errors import Problem
from digend.config.layers import Layer, Layers, rebased
from digend.config.node import NodeConfig


class LayerSource(PydanticBaseSettingsSource):
    """One layer."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self._layer = layer

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._layer.table.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._layer.table


class NodeSettings(BaseSettings, NodeConfig):
    """A node whose keys come from layers, weakest first, and from nowhere else."""

    model_config = SettingsConfigDict(extra="forbid")

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__(layers=layers)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        layers = init_settings.init_kwargs["layers"]
        return tuple(LayerSource(settings_cls, layer) for layer in reversed(layers))


def node_of(layers: Layers) -> tuple[NodeConfig | None, list[Problem]]:
    """The node that the layers describe, its paths absolute; or None. With it, all that is wrong."""
    try:
        settings = NodeSettings(layers.layers)
    except ValidationError as error:
        return None, problems_of(error, NodeConfig, layers.table, layers)
    config = NodeConfig.model_validate(rebased(settings.model_dump(), layers.folder))
    return config, [layers.problem(key, message) for key, message in node_complaints(config)]
