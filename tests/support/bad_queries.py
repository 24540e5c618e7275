"""Queries that nobody means well, and what people send by mistake: for tests of every surface that searches."""

BLANK = ("", " ", "\t\n", "\u2003\u00a0")
"""Without a visible character: a mistake that is named."""

ODD = {
    "stop words": "what is it?",
    "more stop words": "to be or not to be, that is the",
    "emoji": "🎉🎉 🚀",
    "emoji of many parts": "👩‍👩‍👧‍👦🏳️‍🌈",
    "punctuation": "... ??? !!! ---",
    "one quotation mark": '"',
    "quotation marks": '"""" "" "',
    "FTS words": "AND OR NOT NEAR",
    "FTS syntax": 'a* NEAR(b c, 2) ^x col:"y" -z {text}: +(',
    "SQL": "'; DROP TABLE chunks; --",
    "SQL of FTS": "x' OR rank MATCH 'bm25(10)' --",
    "escapes": "\x1b]0;owned\x07\x1b[31mred\x1b[2J",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x9b31m",
    "bidi": "\u202ereversed\u2066\u2069\u200f",
    "invisible": "\u200b\u2060\ufeff\u00ad",
    "zero": "crane\0crane",
    "binary": bytes(range(256)).decode("latin-1"),
    "not characters": "\ufffe\uffff\U0010ffff",
    "combining": "z" + "\u0301" * 500,
    "a date that is none": "what did we say on 30 February 2026, on 2026-13-45 and on 99.99.9999?",
    "dates": "yesterday last week in march 2026-01-05 " * 200,
    "a path": "/etc/passwd",
    "a path up": "../../../../etc/shadow",
    "an address": "http://127.0.0.1:1/?q=%00&x=%2e%2e",
    "an option": "--limit=-1",
    "markup": "<script>alert(1)</script>{{7*7}}${7*7}",
    "a format": "%s%n%x {0.__class__} %(x)s",
    "another script": "漢字かな交じり文 한국어 العربية עברית ไทย",
    "one long word": "x" * 16_000,
    "many words": " ".join(f"w{number}" for number in range(2_700)),
    "nested": "(" * 8_000 + ")" * 8_000,
}
"""Each is a query: it is answered, and changes nothing."""

CHARS_MAX = 16 * 1024
ENORMOUS = "crane " * (CHARS_MAX // 6 + 1)
"""More than a query may have."""

_FRAME = """\
  File "/srv/app/lib/python3.11/site-packages/worker/pool_{0}.py", line {0}, in run_job_{0}
    return self._execute(job_{0}, deadline=0x7f3a9c{0:06x}, token="{0:032x}")
"""
PASTED = {
    "a traceback": "Traceback (most recent call last):\n"
    + "".join(_FRAME.format(number) for number in range(60))
    + "CraneOverloadError: the harbour crane exceeded its lifting limit\n",
    "a log": "".join(
        f"2026-01-{1 + number % 28:02}T09:{number % 60:02}:11.{number:06}Z INFO worker-{number} request_id="
        f"{number * 7919:032x} harbour crane gauge={number} status=200 took={number}ms\n"
        for number in range(75)
    ),
    "source": "".join(
        f"def harbour_crane_gauge_{number}(reading: float) -> float:\n"
        f'    """Return the crane\'s gauge {number}."""\n    return reading * {number}.5 + CRANE_OFFSET_{number}\n\n'
        for number in range(70)
    ),
}
"""About 10 KB each, pasted as they were: all speak of the harbour crane."""
