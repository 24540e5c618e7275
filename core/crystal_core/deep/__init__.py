"""Deep search: a language model says a query in other words and judges what is found.

| module | holds |
|---|---|
| `engine` | the run: expand, search, fuse, judge, blend; what a model adds to a fast search, within a time |
| `fusing` | arithmetic: when expansion is not worth it, fusion of lists, blending of ranks with judgements |
| `prompts` | what the model is asked, and what of a text it is shown |
| `answers` | what is taken of its answers |

A model's words are searched for, and its numbers order what the fast searches found; nothing else of it gets anywhere. Nothing
here knows a database, a provider or a clock but the event loop's.
"""
