"""Every limit and fixed length of the byte formats, in one place.

Rules: bytes unless the name says otherwise; the qualifier (`_MAX`, `_MIN`) comes last. A reader checks against these before
it slices, allocates or decompresses. They are part of protocol version 2: changing one needs a new version or suite.
"""

KIB = 1024
MIB = 1024 * KIB

# Lengths of the primitives.
KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAC_BYTES = 32
TAG_BYTES = 16
NONCE_BYTES = 12
HASH_BYTES = 32

# Identifiers and other header fields.
VAULT_BYTES = 16
DEVICE_BYTES = 16
INCARNATION_BYTES = 8
SALT_BYTES = 24
CHECK_VALUE_BYTES = 8
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

# Entries.
HEADER_BYTES = 184
ENTRY_BYTES_MAX = 1 * MIB  # §3-1
PUBLIC_BYTES_MAX = 256 * KIB
FRAMES_MAX = 4096
PLAINTEXT_BYTES_MAX = 16 * MIB
"""All frames of one entry together, after decompression."""
FRAME_HEADER_BYTES = 9
PADDED_BYTES_MIN = 256
BODY_PIECE_BYTES = 128 * KIB
"""The body is hashed in pieces of this size, so that two processors can share the work."""

# Blobs.
BLOB_HEADER_BYTES = 96
BLOB_BYTES_MAX = 8 * MIB
"""A whole stored blob: header, MAC, and all chunks with their tags."""
BLOB_CHUNK_BYTES = 64 * KIB
BLOB_LENGTH_BYTES = 8
"""The content's length, at the head of the sealed payload."""
BLOB_TURN_MAX = 255
"""Equal contents can have this many names after each other."""

# Sealed key bundles and device identities.
BUNDLE_BYTES = 114
IDENTITY_BYTES = 93

# Letters.
LETTER_OVERHEAD_BYTES = 2 + 32 + TAG_BYTES
"""What sealing adds to a letter's content."""
LETTER_CONTENT_BYTES_MAX = 96 * KIB

OFFLINE_CODE_CHECK_BYTES = 4

# Invites.
INVITE_SECRET_BYTES = 16
INVITE_URL_BYTES_MAX = 200
INVITE_CHECK_BYTES = 4
INVITE_BYTES_MAX = (
    1 + VAULT_BYTES + INVITE_SECRET_BYTES + KEY_BYTES + 1 + INVITE_URL_BYTES_MAX + INVITE_CHECK_BYTES
)
"""An invite's bytes, which its text holds."""
SHORT_KEY_CHARS = 10
"""Of 5 bits each."""
SHORT_PLACE_BYTES = 16
SHORT_INVITE_BYTES = 1 + INVITE_BYTES_MAX + TAG_BYTES
"""An invite that is sealed for a short one."""
INVITE_NONCE_BYTES = 32
INVITE_MESSAGE_BYTES_MAX = 4 * KIB
INVITE_NAME_CHARS_MAX = 200
"""Of a device's name, and of its system's."""
MAILBOX_BYTES = 16
ACCESS_BYTES = 32
DIGITS_CHARS = 6
DIGITS_TRIES_MAX = 3

# The recovery kit.
KIT_LINES = 6
KIT_LINE_BYTES = 8
KIT_LINE_CHECK_BYTES = 2
KIT_TEXT_CHARS_MAX = 64 * KIB

# The published prototype's payload.
V1_PAYLOAD_BYTES_MAX = 100 * MIB

# The key store.
SECRET_NAME_CHARS_MAX = 64
SECRET_BYTES_MAX = 16 * KIB
WRAPPED_OVERHEAD_BYTES = 4 + 1 + 8 + SALT_BYTES + TAG_BYTES
"""What wrapping adds to a secret."""
PASSPHRASE_HEADER_BYTES = 151
PASSPHRASE_BYTES_MAX = 1024
PASSPHRASE_BYTES_MIN = 8
"""Of a new passphrase. One that is there already is taken as it is."""
ARGON2_MEMORY_KIB_MIN = 8
"""For each lane."""
ARGON2_MEMORY_KIB_MAX = 256 * KIB
ARGON2_ITERATIONS_MAX = 64
ARGON2_LANES_MAX = 8

# In memory only.
STREAM_KEYS_CACHED_MAX = 256
