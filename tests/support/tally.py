"""What a run of tests has been through, for the soak to add up: lines of JSON in the file `SCHEDD_TALLY`, if asked."""

import json
import os


def add(**counts: int) -> None:
    """Add to the tally. One short append, so that processes may share the file."""
    path = os.environ.get("SCHEDD_TALLY")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(counts) + "\n")
