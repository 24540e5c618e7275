"""Setting this machine up and undoing it: what is found here, the steps, and how each of them went.

| module | holds |
|---|---|
| `steps` | what a step is; carrying a plan out |
| `tools` | the AI tools on this machine and what of them is recorded |
| `choosing` | which tools are recorded, in ``config.json`` |
| `history` | what was said before Crystal came: recorded, or stepped over |
| `raising` | the steps of `crystal up` |
| `lowering` | the steps of `crystal down` and `crystal uninstall` |
| `purging` | removing the home, and what would be lost with it |
"""
