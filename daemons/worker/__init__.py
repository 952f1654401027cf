"""The shell shared by generator, trainer and reward: a session with the driver around one engine on one thread."""
