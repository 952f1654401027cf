"""Plug-ins by entry point (groups digend.models, digend.algorithms, digend.rewards), and file.py:function rewards."""
