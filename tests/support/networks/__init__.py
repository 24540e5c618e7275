"""Networks that a test can spoil, under the real processes of a vault.

`namespaces`: every device and the relay in a network namespace of its own, IP packets lost, delayed, doubled and overtaken
on the way. `lines`: TCP connections carried by the test, for machines where that is not permitted. `weather` says what
happens on a line, in words that both understand.
"""
