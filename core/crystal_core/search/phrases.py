"""What people and assistants say in a few words: that something follows, that nothing is known, that something is asked.

English, German, Spanish, French, Portuguese, Italian, Japanese and Chinese. Every expression takes time linear in the text.
"""

import re

ANNOUNCEMENT_WORDS_MAX, ANNOUNCEMENT_CHARS_MAX = 30, 300
"""An assistant's message that says more than this is no announcement."""
IGNORANCE_CHARS_MAX = 500
"""An assistant that has more to say than this knows something."""
ASKING_CHARS = 400
"""Beginning of a message in which a question mark counts: what follows may be a log or a file."""
CHANGE_CHARS = 500
"""Beginning of a message in which it says that something changed."""

_LEADS = "ok okay sure right alright good great perfect now first next then yes understood"
_LOOKING = """
    check look see read search go run find start open take do try dig get investigate grep trace begin walk scan inspect pull
    verify confirm review examine explore now first have quickly just
"""
_SOON = rf"i(?:['’]ll| will|['’]m going to| am going to) (?:{'|'.join(_LOOKING.split())})\b"
_ANNOUNCING = re.compile(
    rf"(?:(?:{'|'.join(_LEADS.split())}|got it|good question)[,.!:;—-]*\s+)*"
    rf"(?:let me(?! know)|let's|{_SOON}|i need to|i should"
    r"|one moment|just a moment|hold on|checking|looking|searching|reading|running|investigating|give me a"
    r"|ich (?:schaue|sehe|prüfe|suche|lese|werde|muss)|lass mich|moment|mal sehen|einen moment|schauen wir"
    r"|voy a|déjame|dejame|permíteme|vamos a|un momento|reviso|estoy (?:revisando|buscando)"
    r"|je vais|laisse[- ]moi|laissez[- ]moi|un instant|je (?:regarde|vérifie|cherche)|voyons"
    r"|vou |deixe[- ]me|deixa eu|fammi|lasciami|controllo|vediamo"
    r"|確認(?:します|して)|調べ(?:ます|て)|少々お待ち|让我|我来|我先|稍等)",
    re.IGNORECASE,
)
"""What an assistant says before it does something."""
_ANNOUNCING_AT_LAST = re.compile(
    rf"[.,;:!?–—-]\s+(?:and |so |but )?(?:let me(?! know)\b|{_SOON}|one moment|hold on)"
    r"[^.!?]*[.!]?$",
    re.IGNORECASE,
)
"""The same behind a first clause: "There are 72 places, I'll go through them."."""
_IGNORANT = re.compile(
    r"(?:i|we)(?: still)? (?:don['’]t|do not|didn['’]t|did not|can['’]t|cannot|could not|couldn['’]t) (?:\w+ ){0,2}?"
    r"(?:know|find|have (?:any|a) (?:record|note|memory|information|mention)|see any|recall|remember|tell|locate)"
    r"|(?:i|we) (?:have|find|found|see) no (?:\w+ ){0,2}?(?:record|note|mention|memory|information|trace|decision)"
    r"|there(?:['’]s| is| was| are| were) (?:no|nothing|not any|not a) (?:\w+ ){0,3}?"
    r"(?:record|note|mention|information|trace|decision|about|on (?:that|this|it)|in the)"
    r"|neither [\w\s]{1,60}? nor [\w\s]{1,60}? (?:say|says|said|mention|mentions|know|knows|tell|tells)\b"
    r"|(?:i|we) (?:can['’]t|cannot|couldn['’]t|don['’]t) (?:answer|say|see)"
    r"|i(?:['’]d| would) (?:only be |be |rather not )guess|(?:says?|said|saying|mentions?) nothing\b"
    r"|not (?:written|noted|recorded|documented)"
    r"|nothing (?:\w+ ){0,3}?(?:about|on) (?:it|that|this)|nowhere (?:is|was|does|do)\b"
    r"|no (?:record|mention|trace|notes?) of (?:that|this|it)"
    r"|nothing (?:is |was )?(?:recorded|noted|written down|on record)"
    r"|(?:ich|wir) (?:weiß|weiss|wissen|finde|finden|habe|haben)\b.{0,24}?\b(?:nicht|nichts|keine[nr]?)\b"
    r"|no (?:lo )?(?:sé|encuentro|tengo (?:ningún|ninguna|constancia|registro)|encontré)"
    r"|no hay (?:nada|ningún|ninguna|registro|constancia)"
    r"|je ne (?:sais|trouve|retrouve|vois)|je n'ai (?:rien|aucun|pas)|aucune? (?:trace|note|mention)"
    r"|não (?:sei|encontro|encontrei|há)|non (?:lo so|trovo|ho trovato|c'è)"
    r"|見つかりません|見つからな|わかりません|分かりません|記録(?:は|が)(?:あり|見|残)|没有(?:找到|记录)|不知道",
    re.IGNORECASE,
)
"""What an assistant says that has no answer."""
_NEGATIONS = (
    *("n't", "n’t", "not ", "cannot", "no ", "nothing", "neither", "nowhere", "guess"),
    *("nicht", "keine", "ne ", "n'ai", "aucun", "não", "non ", "ません", "見つか", "記録", "没有", "不知道"),
)
"""One of these is in every such text, and looking for them is quick."""
_ASKING = re.compile(r"[?？؟](?:[\"')\]\s]|$)")
_ASKING_WORDS = """
    what which who whom whose when where why how do does did is are was were can could should would will have has had
    welche welcher welches welchen wer wann wo warum wieso wie haben hat ist sind kann können
    qué que cuál quién cuándo dónde cómo quel quelle quels quelles qui quand où pourquoi comment
"""
_INTERROGATIVE = re.compile(
    r"(?:so|and|but|hey|ok|please|wait|sorry|hi|hello)?[, ]*"
    rf"(?:{'|'.join(_ASKING_WORDS.split())}|what's|who's|where's|remind me|por qué|est-ce)\b",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"\W*(?:(?:so|and|ok|hey|please)[, ]*)?(?:(?:by|at|on|in|for|to|from) )?"
    r"(?:what|what's|when|how many|how much|how often|how long|which|where|where's|who|who's)\b",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:did|was|were|had|original|originally|before|previous|previously|used to|initial|initially|ago|yesterday|last"
    r"|earlier|history|changed|since|order|between|after|summary|summari[sz]e|across)\b",
    re.IGNORECASE,
)

_NOW_WORDS = """
    now current currently today latest newest still nowadays aktuell jetzt derzeit heute momentan ahora actualmente
    actuellement maintenant
"""
_NOW = re.compile(
    rf"\b(?:{'|'.join(_NOW_WORDS.split())}|as of today|at the moment|these days|what holds|up to date)\b|今|現在|现在|目前",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"instead of|no longer|not .{0,40}? any ?more|change of plan|\bchange[sd]\b|new decision|\bswitch(?:ed|ing)?\b"
    r"|\bmoved? (?:on to|to|away)\b|\breplac(?:es?|ed|ing)\b|\bupdated?\b|from now on|is history|in place of|rather than"
    r"|used to|\b(?:adjusted|increased|raised|lowered|rescheduled|postponed|extended)\b"
    r"|\bstatt|nicht mehr|ab jetzt|geändert|en lugar de|ya no|cambiado|au lieu d|ne .{0,20}? plus|désormais",
    re.IGNORECASE,
)
_NEWS = re.compile(
    rf"{_CHANGE.pattern}|\brecently\b|\bnow\b|\bas of\b|\bnew (?!to\b)\w+"
    r"|\b(?:improved|reduced|grown|risen|dropped|reached|expanded|decreased|shifted|bumped|cut) (?:it )?(?:to|by|from)\b",
    re.IGNORECASE,
)


def announces(text: str) -> bool:
    """Whether a message only says what its author is about to do."""
    if len(text) > ANNOUNCEMENT_CHARS_MAX:
        return False
    plain = text.strip()
    if len(plain.split(None, ANNOUNCEMENT_WORDS_MAX)) > ANNOUNCEMENT_WORDS_MAX:
        return False
    return (
        plain.endswith((":", "：", "…"))
        or _ANNOUNCING.match(plain) is not None
        or _ANNOUNCING_AT_LAST.search(plain) is not None
    )


def answers(text: str) -> bool:
    """Whether a message that ends a turn says something: neither what follows, nor that nothing is known."""
    if len(text) > IGNORANCE_CHARS_MAX:
        return True
    if not text.strip():
        return False
    lowered = text.casefold()
    if any(sign in lowered for sign in _NEGATIONS) and _IGNORANT.search(text) is not None:
        return False
    return not announces(text)


def asks(text: str) -> bool:
    """Whether a person's message is a question rather than a statement."""
    plain = text.strip()
    return _ASKING.search(plain[:ASKING_CHARS]) is not None or _INTERROGATIVE.match(plain) is not None


def asks_for_now(query: str) -> bool:
    """Whether a query says that it wants what holds now."""
    return _NOW.search(query) is not None


def tells_change(text: str) -> bool:
    """Whether a message says that something is not as it was."""
    return _CHANGE.search(text[:CHANGE_CHARS]) is not None


def tells_news(text: str) -> bool:
    """Whether a person's message says that something is new, or not as it was."""
    return _NEWS.search(text[:CHANGE_CHARS]) is not None


def asks_what_holds(query: str) -> bool:
    """Whether a query asks for a value as it is now ("what is the quota"), so that the newest of several answers counts."""
    return _VALUE.match(query) is not None and _PAST.search(query) is None
