"""The background service: one process a home that captures, syncs, and runs the home's jobs.

| module | holds |
|---|---|
| `process` | the process itself |
| `registry` | all jobs |
| `actions` | what each command of another device does here |
| `command_server` | the loop that serves these commands |
| `job_requests` | running or pausing a job on request |
| `logs` | the log file |
| `power` | battery and metered networks |
"""
