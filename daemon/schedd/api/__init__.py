"""The HTTP API on a unix socket: the application (`app`), its routes (one noun per `routes_*`), its server and socket.

It hands requests to the engine and reads rows; it refuses to know how tasks run and how they are stored.
The reference for people is docs/api.md. Tests: tests/api.
"""
