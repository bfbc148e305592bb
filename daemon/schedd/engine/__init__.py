"""The engine: one thread that owns the core, commits its decisions and then lets their effects go."""
