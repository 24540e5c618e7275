"""The limits of store and relay, each with its unit. Bytes unless the name says otherwise."""

KIB = 1024
MIB = 1024 * KIB

# --- the Store port ---------------------------------------------------------------------------------------------------

KEY_CHARS_MAX = 256
OBJECT_BYTES_MAX = 128 * MIB
"""Largest object of any implementation. Vault channels allow far less (below)."""
BATCH_OBJECTS_MAX = 256
"""Objects of one request for many."""
BATCH_BYTES_MAX = 4 * MIB
"""Of the objects of one request together."""
BATCH_OBJECT_BYTES_MAX = 512 * KIB
"""A larger object travels alone."""
KEYS_JSON_BYTES_MAX = 96 * KIB
"""A request for `BATCH_OBJECTS_MAX` of the longest keys."""
LIST_LIMIT_MAX = 1000
"""Keys in one page."""
WAIT_SECONDS_MAX = 60.0
HELD_WAIT_SECONDS_MAX = 900.0
"""The longest wait that stays one response and shows from time to time that it goes on."""
HELD_WAIT_BEAT_SECONDS_MAX = 45.0
"""It shows that at least this often: before proxies and routers end a connection on which nothing comes."""
WAIT_TOKEN_ORIGINS_MAX = 32
"""Relay processes that a wait token can name: 16 that serve, and as many that stopped recently."""
WAIT_TOKEN_CHARS_MAX = 36 * WAIT_TOKEN_ORIGINS_MAX
PIECE_BYTES = 256 * KIB
"""Bodies move in pieces of about this size; a body in flight costs a few of them in memory."""

# --- the relay's vault channels ---------------------------------------------------------------------------------------

ENTRY_BYTES_MAX = 1 * MIB + 4 * KIB
"""Everything but blobs: the protocol's entries have at most 1 MiB; the rest is for framing."""
LOG_ENTRY_BYTES_MAX = 576 * KIB
"""The device log: a public part of 256 KiB, a body of 8,192 keys, and names. Every device reads all of it."""
BLOB_BYTES_MAX = 8 * MIB + 64 * KIB
"""Ciphertext of an 8 MiB blob with its headers and one tag for each 64 KiB."""
DIRECT_BYTES_MIN = 256 * KIB
"""Smallest blob for a direct transfer: for smaller ones two further requests cost more than they save."""
INVITE_BYTES_MAX = 16 * KIB
SHORT_INVITE_BYTES_MAX = 512
"""A sealed invite, for a short one: the protocol's has 287."""
INVITE_SECONDS = 600
"""An invite's life, by the relay's clock."""
INVITE_KEPT_SECONDS = 24 * 3600
"""How long after its ten minutes the relay keeps the state of an invite."""
INVITES_OPEN_MAX = 3
"""Open invites of one vault."""
INVITES_KEPT_MAX = 256
"""Invites of one vault including those that are over: about as many can be made in a day."""
VAULT_DEVICES_MAX = 1_000
"""Devices of one vault."""
DEVICES_JSON_BYTES_MAX = 192 * KIB
"""A list of that many devices."""
FOUNDING_ROOTS_MAX = 64
"""Roots that a proof of the root passes over."""
FOUNDING_ROOT_BYTES_MAX = 1_536
"""One of them in a proof: 184 of header, 1,200 of public part at most, 128 behind it."""
FOUNDING_JSON_BYTES_MAX = 160 * KIB
"""A request to create a vault."""
RECOVERIES_MAX = 1_000
"""How often a vault's recovery secret can be replaced."""
RECOVERIES_TOLD = 16
"""Previous recovery secrets whose holders are told that they were replaced."""
DELETIONS_MAX = 256
"""How often the deletion of a vault can be asked for."""
DELETION_SECONDS_MIN = 24 * 3600
"""Shortest waiting time before a vault is deleted, unless the operator chose a longer one."""
DELETION_SECONDS_MAX = 90 * 24 * 3600
"""Longest waiting time."""
UNUSED_DAYS_MIN = 90
"""Fewest days without use after which an operator can have a vault closed: people travel."""
CONDEMNED_KEYS_MAX = 500
"""Keys that one request can condemn."""
CONDEMNED_JSON_BYTES_MAX = 256 * KIB
