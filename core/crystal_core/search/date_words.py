"""Words that speak of dates, in English, German, Spanish and French: each word's part in such an expression.

Words are lower case, without accents. A word that is more often something else (`may`, `march`, `sun`) is weak: it counts only
where a preposition, a number or the like makes it a date.
"""

from enum import IntEnum, auto


class Kind(IntEnum):
    """What a word does in an expression."""

    DAY = auto()  # value: days from today
    PART = auto()  # of a day
    TONIGHT = auto()  # value: nights from this one
    MONTH = auto()
    WEAK_MONTH = auto()
    SHORT_MONTH = auto()  # abbreviations: weak, and by themselves nothing
    WEEKDAY = auto()
    ENGLISH_WEEKDAY = auto()
    SHORT_WEEKDAY = auto()
    SEASON = auto()
    WEAK_SEASON = auto()
    QUARTER = auto()
    HOLIDAY = auto()
    WEEKEND = auto()
    UNIT = auto()
    NUMBER = auto()
    SOME = auto()  # a few, several: value is the most that it may mean
    LAST = auto()
    LAST_BEHIND = auto()  # la semana pasada
    PAST = auto()  # the past week: up to now
    THIS = auto()
    NEXT = auto()
    EVERY = auto()
    OTHER = auto()  # the other day
    THIRD = auto()  # early June
    THIRD_OF = auto()  # the end of June; by itself nothing
    AGO = auto()
    AGO_BEFORE = auto()  # hace tres dias; value 1: means "before" otherwise
    IN = auto()
    ON = auto()
    AT = auto()  # around, over: as weak as an article
    SINCE = auto()
    BEFORE = auto()
    AFTER = auto()
    UNTIL = auto()
    BETWEEN = auto()
    FROM = auto()
    AND = auto()
    TO = auto()
    ARTICLE = auto()
    OF = auto()
    DATE = auto()  # written in digits
    SPAN = auto()  # 3-10, of March
    YEAR_MONTH = auto()
    NOTHING = auto()


_TABLE: dict[tuple[Kind, int], str] = {
    (Kind.DAY, 0): "today heute hoy aujourd'hui",
    (Kind.DAY, -1): "yesterday gestern ayer hier",
    (Kind.DAY, -2): "vorgestern anteayer antier avant-hier avanthier",
    (Kind.PART, 0): "morning vormittag fruh morgen manana matin matinee",
    (Kind.PART, 1): "afternoon nachmittag tarde apres-midi",
    (Kind.PART, 2): "evening abend soir soiree",
    (Kind.PART, 3): "night nacht noche nuit",
    (Kind.PART, 4): "noon lunchtime mittag mediodia midi",
    (Kind.TONIGHT, 0): "tonight",
    (Kind.TONIGHT, -1): "anoche",
    (Kind.MONTH, 1): "january januar janner enero janvier",
    (Kind.MONTH, 2): "february februar feber febrero fevrier",
    (Kind.MONTH, 3): "marz marzo",
    (Kind.MONTH, 4): "abril avril",
    (Kind.MONTH, 6): "juni junio juin",
    (Kind.MONTH, 7): "july juli juillet",
    (Kind.MONTH, 8): "agosto aout",
    (Kind.MONTH, 9): "september septiembre setiembre septembre",
    (Kind.MONTH, 10): "october oktober octubre octobre",
    (Kind.MONTH, 11): "november noviembre novembre",
    (Kind.MONTH, 12): "december dezember diciembre decembre",
    (Kind.WEAK_MONTH, 3): "march mars",
    (Kind.WEAK_MONTH, 4): "april",
    (Kind.WEAK_MONTH, 5): "may mai mayo",
    (Kind.WEAK_MONTH, 6): "june",
    (Kind.WEAK_MONTH, 7): "julio",
    (Kind.WEAK_MONTH, 8): "august",
    (Kind.SHORT_MONTH, 1): "jan janv ene",
    (Kind.SHORT_MONTH, 2): "feb febr fevr",
    (Kind.SHORT_MONTH, 3): "mar mrz",
    (Kind.SHORT_MONTH, 4): "apr abr avr",
    (Kind.SHORT_MONTH, 6): "jun",
    (Kind.SHORT_MONTH, 7): "jul juil",
    (Kind.SHORT_MONTH, 8): "aug",
    (Kind.SHORT_MONTH, 9): "sep sept",
    (Kind.SHORT_MONTH, 10): "oct okt",
    (Kind.SHORT_MONTH, 11): "nov",
    (Kind.SHORT_MONTH, 12): "dec dez dic",
    (Kind.ENGLISH_WEEKDAY, 0): "monday",
    (Kind.ENGLISH_WEEKDAY, 1): "tuesday",
    (Kind.ENGLISH_WEEKDAY, 2): "wednesday",
    (Kind.ENGLISH_WEEKDAY, 3): "thursday",
    (Kind.ENGLISH_WEEKDAY, 4): "friday",
    (Kind.ENGLISH_WEEKDAY, 5): "saturday",
    (Kind.ENGLISH_WEEKDAY, 6): "sunday",
    (Kind.SHORT_WEEKDAY, 0): "mon",
    (Kind.SHORT_WEEKDAY, 1): "tue tues",
    (Kind.SHORT_WEEKDAY, 2): "wed",
    (Kind.SHORT_WEEKDAY, 3): "thu thur thurs",
    (Kind.SHORT_WEEKDAY, 4): "fri",
    (Kind.SHORT_WEEKDAY, 5): "sat",
    (Kind.SHORT_WEEKDAY, 6): "sun",
    (Kind.WEEKDAY, 0): "montag lunes lundi",
    (Kind.WEEKDAY, 1): "dienstag martes mardi",
    (Kind.WEEKDAY, 2): "mittwoch miercoles mercredi",
    (Kind.WEEKDAY, 3): "donnerstag jueves jeudi",
    (Kind.WEEKDAY, 4): "freitag viernes vendredi",
    (Kind.WEEKDAY, 5): "samstag sonnabend sabado samedi",
    (Kind.WEEKDAY, 6): "sonntag domingo dimanche",
    (Kind.SEASON, 1): "summer sommer verano",
    (Kind.SEASON, 2): "autumn herbst otono automne",
    (Kind.SEASON, 3): "winter invierno hiver",
    (Kind.WEAK_SEASON, 0): "spring fruhling fruhjahr primavera printemps",
    (Kind.WEAK_SEASON, 1): "ete",
    (Kind.WEAK_SEASON, 2): "fall",
    (Kind.QUARTER, 1): "q1",
    (Kind.QUARTER, 2): "q2",
    (Kind.QUARTER, 3): "q3",
    (Kind.QUARTER, 4): "q4",
    (Kind.HOLIDAY, 0): "christmas xmas weihnachten navidad noel",
    (Kind.HOLIDAY, 1): "silvester nochevieja",
    (Kind.HOLIDAY, 2): "neujahr",
    (Kind.HOLIDAY, 3): "halloween",
    (Kind.HOLIDAY, 4): "easter ostern pascua paques",
    (Kind.HOLIDAY, 5): "thanksgiving",
    (Kind.WEEKEND, 0): "weekend wochenende week-end finde",
    (Kind.UNIT, 0): "minute minutes mins minuten minuto minutos",
    (Kind.UNIT, 1): "hour hours hrs stunde stunden hora horas heure heures",
    (Kind.UNIT, 2): "day days tag tage tagen dia dias jour jours",
    (Kind.UNIT, 3): "week weeks woche wochen semana semanas semaine semaines",
    (Kind.UNIT, 4): "month months monat monate monaten monats mes meses mois",
    (Kind.UNIT, 5): "quarter quarters quartal quartals trimestre",
    (Kind.UNIT, 6): "year years jahr jahre jahren jahres ano anos annee annees ans l'an",
    (Kind.NUMBER, 1): "a an one ein eine einem einen einer un una uno une",
    (Kind.NUMBER, 2): "two zwei dos deux",
    (Kind.NUMBER, 3): "three drei tres trois",
    (Kind.NUMBER, 4): "four vier cuatro quatre",
    (Kind.NUMBER, 5): "five funf cinco cinq",
    (Kind.NUMBER, 6): "six sechs seis",
    (Kind.NUMBER, 7): "seven sieben siete",
    (Kind.NUMBER, 8): "eight acht ocho huit",
    (Kind.NUMBER, 9): "nine neun nueve neuf",
    (Kind.NUMBER, 10): "ten zehn diez dix",
    (Kind.NUMBER, 12): "twelve zwolf doce douze",
    (Kind.SOME, 2): "couple",
    (Kind.SOME, 4): "paar",
    (Kind.SOME, 5): "few einigen wenigen unos unas algunos algunas quelques",
    (Kind.SOME, 7): "several some mehreren varios varias plusieurs",
    (Kind.LAST, 1): "last letzte letzten letzter letztes letztem vorige vorigen voriges voriger vergangene"
    " vergangenen vergangenes vergangener previous ultimo ultima ultimos ultimas dernier derniere derniers dernieres",
    (Kind.LAST_BEHIND, 1): "pasado pasada pasados pasadas passe passee anterior",
    (Kind.PAST, 1): "past",
    (Kind.THIS, 0): "this dieser diese dieses diesen diesem este esta esto ce cet cette",
    (
        Kind.NEXT,
        0,
    ): "next upcoming coming tomorrow nachste nachsten nachster nachstes kommende kommenden proximo proxima"
    " prochain prochaine",
    (
        Kind.EVERY,
        0,
    ): "every each any per jeder jeden jede jedes cada chaque tous toute toutes black cyber los",
    (Kind.OTHER, 0): "other neulich",
    (Kind.THIRD, 0): "early anfang comienzos principios debut",
    (Kind.THIRD, 1): "mid mitte mediados mi",
    (Kind.THIRD, 2): "late ende finales fin",
    (Kind.THIRD_OF, 0): "beginning start begin",
    (Kind.THIRD_OF, 1): "middle",
    (Kind.THIRD_OF, 2): "end",
    (Kind.AGO, 0): "ago",
    (Kind.AGO_BEFORE, 0): "hace",
    (Kind.AGO_BEFORE, 1): "vor",
    (Kind.IN, 0): "in im en during wahrend durante pendant",
    (Kind.ON, 0): "on am el le",
    (Kind.AT, 0): "at over around uber zu um circa vers hacia por by for",
    (Kind.SINCE, 0): "since seit seitdem desde depuis ab",
    (Kind.BEFORE, 0): "before antes avant",
    (Kind.AFTER, 0): "after nach despues apres",
    (Kind.UNTIL, 0): "until till bis hasta jusqu'au jusqu'a jusqu'en",
    (Kind.BETWEEN, 0): "between zwischen entre",
    (Kind.FROM, 0): "from vom von du",
    (Kind.AND, 0): "and und y et &",
    (Kind.TO, 0): "to through thru al au - – —",
    (Kind.ARTICLE, 0): "the der dem den die das la l las les",
    (Kind.OF, 0): "of de del d des",
}


def _words() -> dict[str, tuple[Kind, int]]:
    return {word: meaning for meaning, listed in _TABLE.items() for word in listed.split()}


WORDS = _words()


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


VERB_NEXT = _set(
    "also always be become cause change contain differ even exist expect fail give happen have lead need never not occur"
    " require result return run still take use want well"
)
"""Words that follow the verbs `may` and `march`, not the months."""
YEAR_NEXT = _set(
    "about after and before but by did do does for from had have he how i is it on or our she that the then they this to until"
    " was we were what when where which who why with you fur haben hat hatte hatten ist und waren war wer wie wir wo ich con"
    " cuando donde el fue hicimos la nosotros para por que y avec dans et il je le les nous ou pour qui sur"
)
"""Words that may follow a year: after most others, four digits count something (`in 2024 bytes`)."""
NUMBERED = _set(
    "build error issue line number page port question frage pregunta release step tag ver version versions v"
)
"""Nouns that a number follows, which is then no date."""
FRENCH = _set(
    "a ai au aux avec avons avez ce ces cette dans de des dit du en est et etait fait il ils j je la le les l mes mon nous on"
    " ont ou par pas pour pourquoi qu que qui quoi sa ses son sur tu un une vous"
)
GERMAN = _set(
    "aber alle als auch auf aus bei das dass dem den der die ein eine einen es fur gibt haben hat ich ihr ist kann man mit"
    " nicht oder sich sie sind soll uber und von warum was welche wer werden wie wird wir wo zu"
)
"""To tell the French `hier` (yesterday) from the German one (here)."""
CONTEXT = VERB_NEXT | YEAR_NEXT | NUMBERED | FRENCH | GERMAN
