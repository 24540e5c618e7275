"""What the tests and the server that forks programs for them say to each other.

A request is HEADER with the length of a JSON document, and four descriptors beside it: standard input, output and error, and
the end of a pipe to which STATUS is written when the program has ended. The document follows. The answer is PID.
"""

import struct

HEADER = struct.Struct("<I")
PID = struct.Struct("<q")
STATUS = struct.Struct("<i")
"""As `os.waitpid` gives it."""
DESCRIPTORS = 4
