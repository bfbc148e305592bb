"""The pure scheduling core: events in, row changes and effects out.

It refuses to know clocks, threads, files, databases and what a task does. `now`, jitter and ids come in as
arguments, so that it can be simulated faster than real time. Tests: tests/unit/core, tests/simulation.
"""
