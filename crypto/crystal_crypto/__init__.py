"""Crystal's cryptography: keys, entry envelope, blobs, identities, pairing codes, key store."""
