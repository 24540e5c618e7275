"""moto's server with conditional writes that have one winner, as S3 promises: moto itself looks and writes in two steps,
between which another thread may come. Run as a script: `python atomic_moto.py PORT`. Only the loopback is served."""

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class OneWinner:
    """Lets one conditional write at a time through, with its body read before: a slow sender holds up nobody."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT" or "HTTP_IF_NONE_MATCH" not in environ:
            return self._application(environ, start_response)
        length = environ.get("CONTENT_LENGTH")
        if length:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self._lock:
            return list(self._application(environ, start_response))


def main(port: int) -> None:
    os.environ["MOTO_PORT"] = str(port)
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    application: Any = DomainDispatcherApplication(create_backend_app)
    application.debug = True
    run_simple("127.0.0.1", port, OneWinner(application), threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
