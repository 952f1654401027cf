"""Typed messages, the msgpack codec and tensor frames. Knows nothing of sockets.

Types here are slotted frozen dataclasses, so that the decision core can use them as they are; pydantic-core
checks them when bytes are decoded (`digend.wire.checks`), nowhere else.
"""
