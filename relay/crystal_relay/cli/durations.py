"""Times as they are given on the command line: `90s`, `30m`, `12h`, `7d`, `2w`."""

import re

from crystal_relay.errors import BadRequest

_FORM = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds_of(text: str) -> int:
    """The seconds that it stands for. Raises BadRequest."""
    found = _FORM.match(text)
    if found is None:
        raise BadRequest(f"{text}: not a time", hint="Give a number and a unit: 90s, 30m, 12h, 7d, 2w.")
    return int(found[1]) * _SECONDS[found[2]]
