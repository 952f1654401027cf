"""Checks of what a job draws: sizes and frames, with the nearest that a family can draw. No torch."""

from digend.models.spec import Shape


def check_size(shape: Shape, multiple: int, largest: int | None = None) -> None:
    """Raises ValueError for a height or width that is no multiple, or more than `largest` pixels."""
    for name, size in (("height", shape.height), ("width", shape.width)):
        if size % multiple:
            near = max(multiple, round(size / multiple) * multiple)
            near = near if largest is None else min(near, largest)
            raise ValueError(
                f"sampling.{name} = {size} is no multiple of {multiple}, which this model needs; nearest is {near}"
            )
        if largest is not None and size > largest:
            raise ValueError(f"sampling.{name} = {size} is more than the {largest} that this model's positions reach")


def check_one_frame(shape: Shape, family: str) -> None:
    """Raises ValueError for a video."""
    if shape.num_frames != 1:
        raise ValueError(f"sampling.num_frames = {shape.num_frames}: {family} draws images, 1 frame")


def check_frames(shape: Shape, stride: int) -> None:
    """Raises ValueError where frames are not 1 + a multiple of the VAE's temporal stride."""
    frames = shape.num_frames
    if (frames - 1) % stride:
        near = 1 + round((frames - 1) / stride) * stride
        raise ValueError(
            f"sampling.num_frames = {frames} is not 1 + a multiple of {stride}, which this model needs; "
            f"nearest is {near}"
        )
