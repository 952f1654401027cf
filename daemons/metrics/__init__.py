"""Prometheus endpoints of the daemons: what each shows, and how it is served."""
