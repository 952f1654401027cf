"""The driver daemon: a thin shell around the decision core, and its journal."""
