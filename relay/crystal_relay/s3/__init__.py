"""The store in a bucket of an object store: AWS S3, Cloudflare R2, or a server that speaks their protocol.

`bucket` does the requests and blocks; `store` is the port on top of it, of `reads` and `writes`; `opening` finds out what the
bucket can do (`probe`) and, where it cannot put writers in order, that nobody else is there (`claim`). The SDK is imported
when a store is opened.
"""

from crystal_relay.s3.address import S3Address, parse_s3_address
from crystal_relay.s3.settings import Conditions, S3Settings
from crystal_relay.s3.startup import open_s3_store
from crystal_relay.s3.store import S3Store

__all__ = ["Conditions", "S3Address", "S3Settings", "S3Store", "open_s3_store", "parse_s3_address"]
