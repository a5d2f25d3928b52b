"""Which language a text is in: by its scripts, and by a small model where many languages share one."""
