"""Setting this machine up, and undoing it.

| module | holds |
|---|---|
| `steps` | what a step is; carrying out a plan |
| `tools` | the AI tools on this machine, and which of them are recorded |
| `up` | the steps of `crystal up` |
| `down` | the steps of `crystal down` and `crystal uninstall` |
| `removal` | removing the home, and what would be lost with it |
"""
