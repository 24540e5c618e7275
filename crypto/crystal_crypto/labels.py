"""The labels that keep one use of a key or hash apart from every other (domain separation).

Rule: each ends with one zero byte and no label holds another zero, so none is a prefix of another. They are never reused.
"""

VAULT = b"crystal/v2/vault\x00"
ROOT_ADMIN = b"crystal/v2/root/admin\x00"
ROOT_RECOVERY = b"crystal/v2/root/recovery\x00"
ROOT_RELAY = b"crystal/v2/root/relay\x00"
ROOT_CHECK = b"crystal/v2/root/check\x00"
SECRET_STATE = b"crystal/v2/secret/state\x00"
SECRET_FORGET = b"crystal/v2/secret/forget\x00"
SECRET_BLOB_NAME = b"crystal/v2/secret/blob-name\x00"
STREAM = b"crystal/v2/stream\x00"
ENTRY = b"crystal/v2/entry\x00"
ENTRY_BODY = b"crystal/v2/entry-body\x00"
ENTRY_MAC = b"crystal/v2/entry-mac\x00"
ENTRY_SIGNATURE = b"crystal/v2/entry-signature\x00"
ENTRY_HASH = b"crystal/v2/entry-hash\x00"
BLOB_STREAM = b"crystal/v2/blob-stream\x00"
BLOB = b"crystal/v2/blob\x00"
BLOB_MAC = b"crystal/v2/blob-mac\x00"
BUNDLE = b"crystal/v2/bundle\x00"
IDENTITY = b"crystal/v2/identity\x00"
