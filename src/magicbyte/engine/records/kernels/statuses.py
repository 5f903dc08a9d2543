"""Statuses that kernels return, and the fields of the decoding kernels' `state`."""

# ---- statuses
DONE = 0
SHORT = 1  # the entry at the position extends past the buffer
FULL = 2  # an output array is full: call again
BAD_SIZE = 3
BAD_MAGIC = 4
BAD_CRC = 5
BAD_KEY_LENGTH = 6
BAD_VALUE_LENGTH = 7
BAD_HEADER = 8
BAD_VARINT = 9
BAD_RECORD_LENGTH = 10
TRAILING_BYTES = 11
NESTED = 12
BAD_TAGS = 13
BAD_WRAPPER_OFFSET = 14
NO_MESSAGES = 15
CUT_MESSAGE = 16
BAD_BATCH_CRC = 17

# ---- fields of `state`
AT = 0  # position where the kernel stopped
ROWS = 1  # rows filled so far
NEED = 2  # scan: size of the entry that extends past the buffer
EXPECTED = 3
FOUND = 4
RUN_INDEX = 5
KEY_BYTES = 6
VALUE_BYTES = 7
HEADERS = 8
STOP = 9  # from here on: fields of one record, set by `find_fields`
DELTA = 10
LATER = 11
KEY = 12
KEY_SIZE = 13
VALUE = 14
VALUE_SIZE = 15
HEADER = 16
HEADER_COUNT = 17
STATE = 18
