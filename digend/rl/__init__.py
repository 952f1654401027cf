"""The pure arithmetic of the post-training: seeds, prompts, windows, sigma schedules, advantages, selection.

No torch, no numpy, no randomness that is not handed in, no clock: the decision core imports it.
"""
