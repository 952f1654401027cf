"""What holds for all tests, however they were started."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts what it puts in the background deaf to Ctrl-C, and the programs of tests would inherit that."""
