"""How the demo's assets are made: the shapes model, its two classifiers, its prompts."""
