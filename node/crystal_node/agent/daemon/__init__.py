"""The agent: one process a home that captures, syncs, and does the home's duties in the background.

| module | holds |
|---|---|
| `work` | what every duty is given |
| `jobs` | what a job is, and how it stands |
| `store` | jobs.db: last runs, what is paused, what a person asked for |
| `schedule` | when each job runs |
| `duties` | the list of all jobs |
| `pulse` | notices sleep, a stopped clock, another network, another configuration |
| `running` | the process itself |
| `standing` | what others see of it: who runs, since when |
| `stopping` | ends it |
| `logs` | the log file |
| `power`, `network` | battery, metered networks, which network |
"""
