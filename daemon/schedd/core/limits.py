"""Every bound of the core, in one place, with the relations between them asserted.

Sizes are counts, characters or bytes as the name says; times are seconds.
"""

MAX_TASKS_PER_BATCH = 250_000
MAX_DEPS_PER_TASK = 100_000
MAX_ID_CHARS = 200
MAX_BATCH_NAME_CHARS = 100
MAX_ERROR_CHARS = 2_000
MAX_RESULT_CHARS = 65_536
MAX_PAYLOAD_CHARS = 4_194_304
MAX_BODY_BYTES = 67_108_864
MAX_INTEGER = 2**63 - 1
MAX_PRIORITY = 2**31 - 1
MAX_ATTEMPTS = 1_000_000
MAX_TIMES = 1_000_000_000
MAX_DURATION_S = 3_200_000_000.0  # about a hundred years
MIN_EVERY_S = 0.001
MAX_WORKERS = 1_024
MAX_CAPACITY = 1_000_000
MAX_RESOURCE_NAME_CHARS = 100
MAX_RESOURCES_PER_TASK = 20
MAX_COMMAND_ARGS = 100_000
MAX_ENV_VARS = 10_000
MAX_PATH_CHARS = 4_096
MAX_JSON_DEPTH = 100
MAX_IDS_PER_REQUEST = 10_000
MAX_FULL_ID_CHARS = MAX_BATCH_NAME_CHARS + 1 + 20 + 1 + MAX_ID_CHARS  # name-counter/id
MAX_SPEC_ERRORS = 20

DEFAULT_GRACE_S = 10.0
"""How long a task may take to end after it was told to, before it is killed."""

SCHEDD_FAULT_DELAY_S = 5.0
"""How long a task waits after a start that failed through no fault of its own (no file descriptors, a full disk)."""

LOG_LENGTH = 10_000
"""How many lines the library's `Scheduler.log` keeps."""

assert MAX_BATCH_NAME_CHARS < MAX_ID_CHARS
assert MAX_RESULT_CHARS <= MAX_PAYLOAD_CHARS <= MAX_BODY_BYTES
assert MAX_PRIORITY <= MAX_INTEGER and MAX_TIMES <= MAX_INTEGER
