"""Sentences from templates: the same random source gives the same words.

    {name}     the slot of that name, else one of the rule's alternatives, which may have slots themselves
    {^name}    the same with a capital letter
    {?name}    the same or nothing, half of the time each

Before a noun, "a" becomes "an" where it must. Braces around anything but a lower-case name stay as they are, so that templates
can hold code.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random

DEPTH_MAX = 8
"""Rules within rules."""
_SLOT = re.compile(r"(\b[Aa] )?\{([?^]?)([a-z][a-z_0-9]*)\}")
_GAPS = re.compile(r"(?<=\S) {2,}(?=\S)")
_END_GAPS = re.compile(r" +(?=\n|$)")


class Phrases:
    """Rules: a name with its alternatives."""

    def __init__(self, rules: Mapping[str, Sequence[str]]) -> None:
        self._rules = rules

    def __contains__(self, name: str) -> bool:
        return name in self._rules

    @property
    def names(self) -> list[str]:
        """The rules."""
        return list(self._rules)

    def one(self, random: Random, name: str, slots: Mapping[str, str]) -> str:
        """One of a rule's alternatives, filled in. Raises KeyError for an unknown rule or slot."""
        return self.filled(random, random.choice(self._rules[name]), slots)

    def templates(self, random: Random, name: str, count: int) -> list[str]:
        """Different alternatives, as they stand in the rule; fewer if it has fewer."""
        rule = self._rules[name]
        return random.sample(rule, min(count, len(rule)))

    def filled(self, random: Random, template: str, slots: Mapping[str, str]) -> str:
        """The template with its slots filled in. Raises KeyError for an unknown rule or slot."""
        return _GAPS.sub(" ", _END_GAPS.sub("", self._expanded(random, template, slots, 0))).strip()

    def _expanded(self, random: Random, template: str, slots: Mapping[str, str], depth: int) -> str:
        if depth > DEPTH_MAX:
            raise ValueError(f"rules within rules without end: {template!r}")

        def replaced(found: re.Match[str]) -> str:
            article, mark, name = found.group(1) or "", found.group(2), found.group(3)
            if mark == "?" and random.random() < 0.5:
                return article
            text = slots.get(name)
            if text is None:
                text = random.choice(self._rules[name])
            text = self._expanded(random, text, slots, depth + 1)
            if article and name.startswith("noun") and text[:1].lower() in "aeiou":
                article = f"{article[0]}n "
            return article + (text[:1].upper() + text[1:] if mark == "^" else text)

        return _SLOT.sub(replaced, template)
