"""The gateway, `crystal serve`: this device's memory over HTTP for programs and the web page of this machine, and nobody else.

::

    browser, program ──127.0.0.1──► guard: Host, Origin, bearer token, limits ──► routes ──threads──► finding, status, jobs, …

| module | holds |
|---|---|
| `access` | who may: the token, one-time links to the page, the page's sessions |
| `guard` | what each request passes on its way in, each error and each answer on its way out |
| `requests`, `replies`, `documents`, `errors` | strict reading, answers, what both look like, and what is refused |
| `app`, `desk` | all routes, and what they share: settings as they are now, threads, one kept memory |
| `searching`, `standing`, `jobs`, `remembered` | the routes of the page, by subject |
| `published` | the routes that other programs know: process, chat completions, status |
| `chat`, `processes` | a conversation with recalled memory before it; work that was asked for, as child processes |
| `page`, `web/` | the web page: files of this package, sent as they are |
| `serving`, `limits` | the listening socket, and uvicorn within limits |
| `openapi` | the description of all routes |

Nothing of a question or of a text goes to a log, an address or a header.
"""
