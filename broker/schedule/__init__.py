"""The schedule model of a global step, exact and pure: what the strategies search and the simulator runs.

Integers only, no clock, no socket, no randomness, no torch. The paper's sections 3.3, 3.4 and 4.
"""
