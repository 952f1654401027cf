"""What holds for all tests, however they were started."""

import signal

from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts what it puts in the background deaf to Ctrl-C, and the programs of tests would inherit that."""

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
"""How long an example takes says nothing of the code where other tests run beside it."""
