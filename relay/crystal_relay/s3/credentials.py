"""The keys of a bucket, as the SDK's own chain finds them, with one difference: those of a file follow the file.

The SDK renews the keys of a role, of a process (`credential_process`) and of a web identity by itself, and reads those of a
credentials or configuration file once. Keys in the environment are those of the process's start.
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import botocore.session
from boto3.session import Session
from botocore.credentials import CredentialProvider, Credentials
from botocore.exceptions import BotoCoreError

FILES = {"shared-credentials-file": "credentials_file", "config-file": "config_file"}
"""The SDK's providers that read a file, and its setting that names it."""

_log = logging.getLogger(__name__)


def session_with_current_keys() -> Session:
    """The SDK's session by its own chain. Raises BotoCoreError for unusable settings."""
    core = cast("Any", botocore.session.Session())  # the SDK has no types
    resolver = core.get_component("credential_provider")
    for name, setting in FILES.items():
        file = Path(str(core.get_config_variable(setting))).expanduser()
        resolver.insert_before(name, _FileProvider(resolver.get_provider(name), file))
    return Session(botocore_session=core)


class _FileProvider(CredentialProvider):  # type: ignore[misc]  # the SDK has no types
    """Finds what the SDK's provider finds, as keys that follow the file."""

    METHOD = "crystal-file"
    CANONICAL_NAME = "CrystalFile"

    def __init__(self, provider: Any, file: Path) -> None:
        super().__init__()
        self._provider = provider
        self._file = file

    def load(self) -> Any:
        """The keys, or None. Called by the SDK."""
        signature = _signature(self._file)
        found = self._provider.load()
        return None if found is None else FileCredentials(found, signature, self._file, self._provider.load)


class FileCredentials(Credentials):  # type: ignore[misc]  # as above
    """Keys that are read again once their file has changed. A file that cannot be used leaves the former keys."""

    def __init__(self, found: Any, signature: object, file: Path, load: Callable[[], Any]) -> None:
        super().__init__(found.access_key, found.secret_key, found.token, method=found.method)
        self._frozen = found.get_frozen_credentials()
        self._signature = signature
        self._file = file
        self._load = load
        self._lock = threading.Lock()

    def get_frozen_credentials(self) -> Any:
        """The keys to sign a request with. Called by the SDK for each, in many threads."""
        signature = _signature(self._file)
        if signature != self._signature:
            with self._lock:
                if signature != self._signature:
                    self._signature = signature
                    self._read_again()
        return self._frozen

    def _read_again(self) -> None:
        try:
            found = self._load()
        except BotoCoreError as error:
            found, reason = None, type(error).__name__
        else:
            reason = "it has no keys of this profile"
        if found is None:
            _log.warning("the file of the bucket's keys has changed and is not used: %s", reason)
            return
        self._frozen = found.get_frozen_credentials()
        _log.warning("the bucket's keys were read again from their file")


def _signature(file: Path) -> object:
    """Differs after each change of the file; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116  (a third of the time of a Path's, for each request)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
