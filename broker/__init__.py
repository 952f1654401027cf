"""The decision core: pure. Events in, commands out; no clock, no socket, no torch (docs/architecture.md)."""
