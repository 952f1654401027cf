"""Devices and shapes with round numbers."""

from broker.planning.devices import Device
from broker.planning.observed import Measured
from broker.planning.shape import Placement, Shape

GENERATOR = Device(name="a/generator/0", role="generator", generate=1.0, score=0.0, update={1: 0.5, 3: 0.25})
TRAINER = Device(name="a/trainer/0", role="trainer", generate=1.0, score=0.0, update={1: 0.5, 3: 0.25})
SHAPE = Shape(prompts=16, samples=4, width=3)


def placement(*generators: Device, commit: float = 0.0, switch: float = 0.0) -> Placement:
    return Placement(trainer=TRAINER, generators=generators or (GENERATOR,), commit=commit, switch=switch)


def measured(*devices: Device) -> Measured:
    return Measured(devices=devices or (GENERATOR, TRAINER))
