"""The programs that run in the foreground: driver, generator, trainer, reward, recorder, and `up` that starts them."""
