"""Under which names a sample's pixels, or its last latents, are served. Torch-free, for who only scores."""

PIXELS, LATENTS = "pixels", "final"
