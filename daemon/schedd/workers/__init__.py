"""The workers: they carry out what the engine orders, and report how it ended.

They know processes, threads and files. They refuse to know rows, dependencies and what happens to a task next.
Tests: tests/unit/workers.
"""
