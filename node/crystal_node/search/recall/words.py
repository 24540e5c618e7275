"""Words that say something: of a prompt, whether there is anything to look for, and of an answer, whether it used a record."""

import re

WORDS_ASKED_MIN = 2
"""A prompt with fewer, such as "yes, continue", asks nothing that could be looked up."""
UNSPACED_CHARS_MIN = 6
"""Of a script without spaces and cases, that stand for as many words as a prompt needs."""
WORDS_USED_MIN = 3
"""Words that a record has and its prompt has not, of which an answer that used it has at least so many,"""
SHARE_USED_MIN = 0.25
"""and at least this share of them."""
WORDS_JUDGED_MIN = 2
"""A record that adds fewer than these to its prompt cannot be told from one that was not used."""

_WORD = re.compile(r"[^\W_]{3,}|\d+(?:[.,]\d+)+|\d{2,}")
_LETTERS = re.compile(r"[^\W\d_]+")
_STEM = 6
_COMMON_WORDS = """
    about after again all also always and any are because been before but can could did does doing done don for from
    get give going good got great had has have having help her here him his how into its just know let like made make
    many may me more much must need new not now off okay one only our out over please put same see she should show
    some still such sure take tell than thank thanks that the their them then there these they thing things this those
    too try two use used using very want was way well were what when where which while who why will with would yes you
    your aber alle als auch auf aus bei bin bis bitte danke das dass dein dem den der des die dies diese doch ein eine
    einem einen einer für gut hat ich ihr ist jetzt kann kein können machen man mehr mein mit nach nein nicht noch nun
    nur oder schon sehr sein sich sie sind soll sollen über und uns vom von war warum weiter wenn wer werden wie wir
    wird wurde zum zur ahora algo así aún bien como con cuando del desde donde ella ellos era esa ese eso esta está
    este esto fue gracias hacer hay las los más muy nos otra otro para pero por porque puede que qué quién ser sí sin
    sobre son sus también tiene todo una uno vale ver aussi avec bon ces cette comme dans donc elle encore est être
    faire fait ils leur les mais merci même mon nous oui ont par pas peut plus pour pourquoi qui quoi sans ses sont
    sur tout très une vous ahead cool continue correct else exactly fine hello hey keep looks maybe never nice other
    perfect really right sorry stop perhaps proceed yep yeah mach genau klar super passt stimmt
"""
_COMMON = frozenset(_COMMON_WORDS.split())


def telling_words(text: str) -> frozenset[str]:
    """The beginnings of the words that say something, numbers whole."""
    return frozenset(
        word if word[0].isdigit() else word[:_STEM]
        for word in map(str.casefold, _WORD.findall(text))
        if word not in _COMMON
    )


def asks_something(prompt: str) -> bool:
    """Whether a prompt has words to look for."""
    if len(telling_words(prompt)) >= WORDS_ASKED_MIN:
        return True
    return any(
        len(run) >= UNSPACED_CHARS_MIN and run.lower() == run.upper() for run in _LETTERS.findall(prompt)
    )


def added_words(passage: str, prompt: str) -> frozenset[str]:
    """What a passage says that its prompt did not."""
    return telling_words(passage) - telling_words(prompt)


def uses(answer: str, passage: str, prompt: str) -> bool | None:
    """Whether an answer has enough of what a passage added to the prompt; None where it added too little to tell.

    An answer that came to the same words by itself counts too: it is an upper bound of what a record was worth.
    """
    added = added_words(passage, prompt)
    if len(added) < WORDS_JUDGED_MIN:
        return None
    shared = len(added & telling_words(answer))
    return shared >= min(WORDS_USED_MIN, len(added)) and shared >= SHARE_USED_MIN * len(added)
