"""What is run from a checkout and never installed: set-up, demo, assets."""
