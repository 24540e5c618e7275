"""Deep search: a language model expands the query and re-ranks the results.

| module | holds |
|---|---|
| `engine` | the run: expand, search, fuse, judge, blend, within a time limit |
| `fusion` | arithmetic: when to skip expansion, fusion of lists, blending of ranks with judgements |
| `prompts` | the prompts, and the excerpts shown to the model |
| `answers` | parsing of the model's answers |

Of a model's answers only words (to search for) and numbers (to order what the fast searches found) are used. Nothing here
knows a database, a provider or a clock other than the event loop's.
"""
