"""Limits of the gateway, against accidents and hostile pages: it serves one person on one machine."""

CONNECTIONS_MAX = 128
"""Beyond, the connection that has been idle longest makes room for a new one."""
HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 10.0
BODY_BYTES_MAX = 256 * 1024
SESSION_BYTES_MAX = 4 * 1024
"""The only body that is read without a token."""
CHAT_BYTES_MAX = 2 * 1024 * 1024
CHATS_MAX = 4
"""Conversations passed on at the same time."""
BODY_SECONDS_MAX = 15.0
SEND_STALL_SECONDS_MAX = 30.0
"""How long an answer may be left unread before the connection ends."""
KEEP_ALIVE_SECONDS = 15
SHUTDOWN_SECONDS_MAX = 5
THREADS_MAX = 8
IDLE_SECONDS = 15 * 60.0
"""The memory's index and model are closed after so long without a search."""
LOCAL_CALLERS_MAX = 64
"""On the background service's socket; more are turned away."""
LOCAL_HEAD_SECONDS_MAX = 2.0
