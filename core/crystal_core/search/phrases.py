"""What people and assistants say in a few words: that something follows, that nothing is known, that something is asked.

English, German, Spanish, French, Portuguese, Italian, Japanese and Chinese. Every expression takes time linear in the text.
"""

import re
from functools import cache

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
_ANNOUNCING = (
    rf"(?:(?:{'|'.join(_LEADS.split())}|got it|good question)[,.!:;—-]*\s+)*"
    rf"(?:let me(?! know)|let's|{_SOON}|i need to|i should"
    r"|one moment|just a moment|hold on|checking|looking|searching|reading|running|investigating|give me a"
    r"|ich (?:schaue|sehe|prüfe|suche|lese|werde|muss)|lass mich|moment|mal sehen|einen moment|schauen wir"
    r"|voy a|déjame|dejame|permíteme|vamos a|un momento|reviso|estoy (?:revisando|buscando)"
    r"|je vais|laisse[- ]moi|laissez[- ]moi|un instant|je (?:regarde|vérifie|cherche)|voyons"
    r"|vou |deixe[- ]me|deixa eu|fammi|lasciami|controllo|vediamo"
    r"|確認(?:します|して)|調べ(?:ます|て)|少々お待ち|让我|我来|我先|稍等)"
)
"""What an assistant says before it does something."""
_ANNOUNCING_AT_LAST = (
    rf"[.,;:!?–—-]\s+(?:and |so |but )?(?:let me(?! know)\b|{_SOON}|one moment|hold on)"
    r"[^.!?]*[.!]?$"
)
"""The same behind a first clause: "There are 72 places, I'll go through them."."""
_KNOWLEDGE = (
    r"(?:record|note|mention|memor(?:y|ie)|information|info|trace|decision|answer|entr(?:y|ie)|reference|documentation"
    r"|conversation|discussion|message)s?\b"
)
"""What an assistant looks for that is asked."""
_SEEN = (
    rf"(?:(?:any|a|the|no) (?:\w+ ){{0,2}}?{_KNOWLEDGE}|anything|it\b|that\b|where|when|who|what|which|how)"
)
_FOUND = rf"(?!any (?!(?:\w+ ){{0,2}}?{_KNOWLEDGE}))"
"""Who cannot find any callers has answered."""
_CANNOT = r"(?:can['’]t|cannot|could not|couldn['’]t)"
_DOES_NOT = rf"(?:don['’]t|do not|didn['’]t|did not|{_CANNOT})"
_IGNORANT = (
    rf"(?:i|we)(?: still)? {_DOES_NOT} (?:\w+ ){{0,2}}?"
    rf"(?:know|find {_FOUND}|have (?:any|a) (?:\w+ )?{_KNOWLEDGE}|see {_SEEN}|recall|remember|tell|locate|answer|say)"
    rf"|(?:i|we) (?:did not|didn['’]t|never) (?:\w+ ){{0,1}}?(?:record|note|document)\b"
    rf"|(?:i|we) (?:have|find|found|see) no (?:\w+ ){{0,2}}?{_KNOWLEDGE}"
    rf"|there(?:['’]s| is| was| are| were) (?:no|not any|not a) (?:\w+ ){{0,3}}?{_KNOWLEDGE}"
    r"|there(?:['’]s| is| was) nothing (?:\w+ ){0,2}?(?:about|on (?:that|this|it)|in the)\b"
    r"|neither [\w\s]{1,60}? nor [\w\s]{1,60}? (?:say|says|said|mention|mentions|know|knows|tell|tells)\b"
    r"|i(?:['’]d| would) (?:only be |be |rather not )guess|(?:says?|said|saying|mentions?) nothing\b"
    r"|(?:\bnot|n['’]t|never) (?:mentioned|discussed|written|noted|recorded|documented)"
    r"|nothing (?:\w+ ){0,3}?(?:about|on) (?:it|that|this)|nowhere (?:is|was|does|do)\b"
    r"|no (?:record|mention|trace|notes?) of (?:that|this|it)"
    r"|nothing (?:is |was )?(?:recorded|noted|written down|on record)"
    r"|(?:(?:ich|wir) (?:weiß|weiss|wissen)|(?:weiß|weiss|wissen) (?:ich|wir))\b.{0,24}?\bnicht"
    r"|(?:ich|wir) (?:finde|finden|habe|haben)\b.{0,24}?\b(?:nichts|keine[nr]? (?:\w+ )?"
    r"(?:notiz|eintr|hinweis|information|aufzeichnung|erwähnung|antwort|unterlage))"
    r"|(?:finde|finden|habe|haben) (?:ich|wir)\b.{0,24}?\b(?:nichts|keine[nr]? )|ich finde .{0,24}?\bnicht\b"
    r"|(?:dazu|darüber|davon) (?:steht|gibt es|ist) (?:leider )?(?:nichts|keine)"
    r"|es gibt (?:dazu |darüber )?(?:nichts|keine[nr]? (?:notiz|eintr|hinweis|information|aufzeichnung))"
    r"|no (?:lo )?(?:sé|encuentro|tengo (?:ningún|ninguna|constancia|registro)|encontré)"
    r"|no hay (?:nada (?:sobre|de|al respecto|en)|ningún|ninguna|registro|constancia)"
    r"|je ne (?:sais|trouve|retrouve|vois)|je n'ai (?:rien|aucune?|pas (?:trouvé|d['’]information|de note|de trace))"
    r"|aucune? (?:trace|note|mention)"
    r"|não (?:sei|encontro|encontrei|há)|non (?:lo so|trovo|ho trovato|c'è)"
    r"|見つかりません|見つからな|わかりません|分かりません|記録(?:は|が)(?:あり|見|残)|没有(?:找到|记录)|不知道"
)
"""What an assistant says that has no answer."""
_NEGATIONS = (
    *("n't", "n’t", "not ", "cannot", "never", "no ", "nothing", "neither", "nowhere", "guess"),
    *("nicht", "keine", "ne ", "n'ai", "aucun", "não", "non ", "ません", "見つか", "記録", "没有", "不知道"),
)
"""One of these is in every such text, and looking for them is quick."""
_CLAUSES = (
    r"(?:[.!?;:,…](?=\s|$)|[。！？；：，、]|\s[–—-]\s|\n)\s*"
    r"|\s(?=(?:but|so|because|since|although|aber|weil|pero|porque|mais|car)\s)"
)
"""What ends a clause: "I couldn't find any callers, | so I removed it"."""
_CONJUNCTION = (
    r"(?:(?:and|but|so|because|since|although|though|as|und|aber|weil|denn|y|pero|porque|et|mais|car)\s+)+"
)
_ASIDE = (
    r"(?:neither|nor|not|at least|anywhere|apart|except|even|just|only|also|yet|so far|here|hm+|well|sorry|unfortunately|maybe"
    r"|perhaps|probably|possibly|if|unless|depending|either|or|as far as|to be honest|from what|please|let me|let['’]s|tell me"
    r"|ask|do you|shall i|should i|leider|vielleicht|wenn|falls|oder|weder|soll ich|quizás?|tal vez|si|puedo|lo siento"
    r"|por desgracia|peut-être|désolée?|je (?:peux|pourrais)|malheureusement|talvez|forse"
    r"|(?:in|on|at|from|by|with|without|to)\b(?=[^0-9`]*$)"
    r"|i['’]?m (?:afraid|sorry|not sure)|i (?:am|would|could|can|will|might|think|guess|suppose|assume)|i['’](?:d|ll)"
    r"|you(?:['’]d|['’]ll| could| can| may| might| would| should)"
    r"|(?:it|that|this|they|somebody|someone|he|she) (?:may|might|could|would|must)"
    r"|that (?:is|was) all|ich (?:habe|kann|könnte|würde|müsste)|he (?:buscado|mirado|revisado)"
    r"|j['’]ai (?:cherché|regardé|parcouru))\b"
    r"|(?:i|we)(?:['’]ve| have)? (?:also |just |only )?(?:look|search|check|go|went|read|grep|tri|scan|ask)|frag"
    r"|申し訳|すみません|残念|もう少し|詳しく|抱歉|对不起|请"
)
"""How a clause begins that tells nothing: where it was looked, what could be, who else could be asked."""
_HEDGED = r"\b(?:maybe|perhaps|might|may know|would know|should know|probably knows?|vielleicht|peut-être)\b"
_CONCRETE = r"[0-9`/_=]|\w\.\w|[A-Za-z]\S* [A-Z]|[\u3040-\u30ff\u4e00-\u9fff]{6}"
_TELLING_WORDS = 3
"""A clause of fewer words tells something only if it has a number, a name or code."""
_ASKING = r"[?？؟](?:[\"')\]\s]|$)"
_ASKING_WORDS = """
    what which who whom whose when where why how do does did is are was were can could should would will have has had
    welche welcher welches welchen wer wann wo warum wieso wie haben hat ist sind kann können
    qué que cuál quién cuándo dónde cómo quel quelle quels quelles qui quand où pourquoi comment
"""
_INTERROGATIVE = (
    r"(?:so|and|but|hey|ok|please|wait|sorry|hi|hello)?[, ]*"
    rf"(?:{'|'.join(_ASKING_WORDS.split())}|what's|who's|where's|remind me|por qué|est-ce)\b"
)
_VALUE = (
    r"\W*(?:(?:so|and|ok|hey|please)[, ]*)?(?:(?:by|at|on|in|for|to|from) )?"
    r"(?:what|what's|when|how many|how much|how often|how long|which|where|where's|who|who's)\b"
)
_PAST = (
    r"\b(?:did|was|were|had|original|originally|before|previous|previously|used to|initial|initially|ago|yesterday|last"
    r"|earlier|history|changed|since|order|between|after|summary|summari[sz]e|across)\b"
)

_NOW_WORDS = """
    now current currently today latest newest still nowadays aktuell jetzt derzeit heute momentan ahora actualmente
    actuellement maintenant
"""
_NOW = rf"\b(?:{'|'.join(_NOW_WORDS.split())}|as of today|at the moment|these days|what holds|up to date)\b|今|現在|现在|目前"
_CHANGE = (
    r"instead of|no longer|not .{0,40}? any ?more|change of plan|\bchange[sd]\b|new decision|\bswitch(?:ed|ing)?\b"
    r"|\bmoved? (?:on to|to|away)\b|\breplac(?:es?|ed|ing)\b|\bupdated?\b|from now on|is history|in place of|rather than"
    r"|used to|\b(?:adjusted|increased|raised|lowered|rescheduled|postponed|extended)\b"
    r"|\bstatt|nicht mehr|ab jetzt|geändert|en lugar de|ya no|cambiado|au lieu d|ne .{0,20}? plus|désormais"
)
_NEWS = (
    rf"{_CHANGE}|\brecently\b|\bnow\b|\bas of\b|\bnew (?!to\b)\w+"
    r"|\b(?:improved|reduced|grown|risen|dropped|reached|expanded|decreased|shifted|bumped|cut) (?:it )?(?:to|by|from)\b"
)


@cache
def _compiled(expression: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """The expression, compiled when it is first needed: all of them take 15 ms, and a search needs few."""
    return re.compile(expression, flags)


def announces(text: str) -> bool:
    """Whether a message only says what its author is about to do."""
    if len(text) > ANNOUNCEMENT_CHARS_MAX:
        return False
    plain = text.strip()
    if len(plain.split(None, ANNOUNCEMENT_WORDS_MAX)) > ANNOUNCEMENT_WORDS_MAX:
        return False
    return (
        plain.endswith((":", "：", "…"))
        or _compiled(_ANNOUNCING).match(plain) is not None
        or _compiled(_ANNOUNCING_AT_LAST).search(plain) is not None
    )


def answers(text: str) -> bool:
    """Whether a message that ends a turn says something: neither what follows, nor only that nothing is known."""
    if len(text) > IGNORANCE_CHARS_MAX:
        return True
    if not text.strip():
        return False
    lowered = text.casefold()
    if any(sign in lowered for sign in _NEGATIONS) and _compiled(_IGNORANT).search(text) is not None:
        return _tells_beside_ignorance(text)
    return not announces(text)


def _tells_beside_ignorance(text: str) -> bool:
    """Whether a message that does not know one thing tells another: "The log says nothing, but the port was taken."."""
    clauses: list[str] = []
    begin = 0
    for end in _compiled(_CLAUSES, 0).finditer(text):
        if not end[0].startswith(("?", "？")):  # a question tells nothing
            clauses.append(text[begin : end.start()])
        begin = end.end()
    clauses.append(text[begin:])
    return any(map(_tells, clauses))


def _tells(clause: str) -> bool:
    plain = clause.strip()
    if conjunction := _compiled(_CONJUNCTION).match(plain):
        plain = plain[conjunction.end() :]
    if (
        _compiled(_ASIDE).match(plain)
        or _compiled(_HEDGED).search(plain)
        or _compiled(_IGNORANT).search(plain)
        or announces(plain)
    ):
        return False
    return (
        len(plain.split(None, _TELLING_WORDS)) >= _TELLING_WORDS
        or _compiled(_CONCRETE, 0).search(plain) is not None
    )


def asks(text: str) -> bool:
    """Whether a person's message is a question rather than a statement."""
    plain = text.strip()
    return (
        _compiled(_ASKING, 0).search(plain[:ASKING_CHARS]) is not None
        or _compiled(_INTERROGATIVE).match(plain) is not None
    )


def asks_for_now(query: str) -> bool:
    """Whether a query says that it wants what holds now."""
    return _compiled(_NOW).search(query) is not None


def tells_change(text: str) -> bool:
    """Whether a message says that something is not as it was."""
    return _compiled(_CHANGE).search(text[:CHANGE_CHARS]) is not None


def tells_news(text: str) -> bool:
    """Whether a person's message says that something is new, or not as it was."""
    return _compiled(_NEWS).search(text[:CHANGE_CHARS]) is not None


def asks_what_holds(query: str) -> bool:
    """Whether a query asks for a value as it is now ("what is the quota"), so that the newest of several answers counts."""
    return _compiled(_VALUE).match(query) is not None and _compiled(_PAST).search(query) is None
