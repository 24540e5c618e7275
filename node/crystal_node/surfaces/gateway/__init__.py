"""The gateway: this device's memory over HTTP, for programs and the web page of this machine alone.

::

    crystal serve        browser, program ──127.0.0.1──► guard: Host, Origin, token ─┐
                                                                                     ├─► routes ──► memory, status, jobs
    background service   command, hook ──Unix socket of its owner──► local ──────────┘

| module | holds |
|---|---|
| `routes` | the routes of `/api`: search, status, jobs, memories |
| `app` | the application of `crystal serve`: `routes`, the page, its sessions, `compatibility` |
| `local` | the application on the background service's socket: `routes`, hooks, waiting for jobs |
| `backend` | what routes share: current settings, threads, one open memory |
| `access`, `guard` | the token, links to the page, its sessions; checks of each request |
| `requests`, `replies`, `documents`, `errors` | strict reading, answers, their schemas, errors |
| `compatibility`, `chat`, `processes` | the routes of the prototype's gateway: chat completions, `/process` |
| `page`, `web/` | the web page: files of this package |
| `server`, `limits` | the listening socket, and uvicorn within limits |
| `openapi` | a route, and the description of all routes |

No part of a question or of a recorded text goes to a log, an address or a header.
"""
