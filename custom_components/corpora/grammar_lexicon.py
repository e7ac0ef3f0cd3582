"""Words of the embedded grammar corpus: fillers, verb and noun forms, confusables, misspellings.

Data and plain look-ups. The sentences are in ``grammar_frames_*.py``, the errors in
``grammar_errors.py``.
"""

from collections.abc import Callable
from functools import cache

FILLERS: dict[str, tuple[str, ...]] = {
    "woman": tuple(
        "Maria Anna Sofia Emma Lucy Grace Nora Julia Helen Alice Mei Fatima Priya Ingrid".split()
    ),
    "man": tuple(
        "Tom David Peter Omar Lucas James Daniel Ravi Hugo Martin Kenji Ali Pablo Erik".split()
    ),
    "weekday": tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
    "month": tuple("January March April May June July August October November".split()),
    "city": tuple(
        "London Paris Berlin Madrid Cairo Tokyo Lima Oslo Dublin Toronto Nairobi Lisbon".split()
    ),
    "country": tuple(
        "France Spain Japan Brazil Canada Kenya Norway Egypt Mexico India Italy Peru".split()
    ),
    "language": tuple(
        "French Spanish Japanese Portuguese Arabic German Italian Turkish Russian Swedish".split()
    ),
    "subject": tuple("chemistry history physics biology geography music economics art".split()),
    "few": tuple("three four five six seven eight nine".split()),
    "year": tuple("1998 2001 2004 2007 2009 2011 2013 2015 2016 2018 2020".split()),
    "clock": (
        "six o'clock",
        "seven o'clock",
        "nine o'clock",
        "half past six",
        "half past eight",
        "quarter past ten",
    ),
    "team": ("the Tigers", "the Lions", "the Rockets", "the Wolves", "the Sharks", "the Eagles"),
}
"""Slot name to fillers. ``{city2}`` in a frame is another draw from ``city``, never the same."""

_TAKES_A = ("uni", "use", "euro", "one")
_TAKES_AN = ("hour", "honest", "heir")


def needs_an(word: str) -> bool:
    """Return whether ``an`` stands before this word, by how it opens when spoken."""
    word = word.lower()
    if word.startswith(_TAKES_A) and not word.startswith("unim"):
        return False
    return word[0] in "aeiou" or word.startswith(_TAKES_AN)


# Verbs: base, past, participle. Regular ones need their base only.
_IRREGULAR_VERBS = """
be was been; beat beat beaten; become became become; begin began begun; break broke broken;
bring brought brought; build built built; burn burned burned; buy bought bought;
choose chose chosen; come came come; cost cost cost; do did done; draw drew drawn;
drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed fed;
fight fought fought; feel felt felt; find found found; fly flew flown; forget forgot forgotten;
forgive forgave forgiven; freeze froze frozen; get got got; give gave given; go went gone;
grow grew grown; have had had; hear heard heard; hide hid hidden; hit hit hit; hold held held;
hurt hurt hurt; keep kept kept; know knew known; lay laid laid; learn learned learned;
leave left left; lose lost lost; make made made; mean meant meant; meet met met; pay paid paid;
put put put; read read read; ride rode ridden; ring rang rung; rise rose risen; run ran run;
say said said; see saw seen; sell sold sold; send sent sent; set set set; sew sewed sewn;
shine shone shone; show showed shown; sing sang sung; sit sat sat; sleep slept slept;
smell smelled smelled; speak spoke spoken; spend spent spent; stand stood stood;
steal stole stolen; swim swam swum; take took taken; teach taught taught; tell told told;
think thought thought; understand understood understood; wear wore worn; win won won;
write wrote written
"""
_REGULAR_VERBS = """
accept adapt add admire admit advertise advise agree announce answer apologise argue arrest arrive
ask attack believe belong blame board boil book box call cancel carry change charge check cheer
chop claim clean climb close collect comment compare complain cook copy cross cry cycle damage
dance dare delay describe destroy discover discuss dry end enjoy enter exchange exercise expect
explain fail file finish fit fix flood fry hand happen hate heat help hire hunt improve install
invite itch join land last laugh lift like live lock look love march measure melt miss move need
notice open own pack paint park pass peel phone photograph plan plant play practise prefer present
print protect publish punish qualify rain reach record remember remind repair repeat replace
report rescue reserve resign rest return roast sail save score serve share shop shout sign ski
smile smoke snow soften start stay stop stretch study suffer suggest support surprise talk taste
test thank touch train translate travel trust try turn update use visit vote wait walk want warm
wash watch weigh work worry
"""
_DOUBLED = frozenset(
    "admit begin cancel chop fit forget get hit plan prefer put run set shop sit stop swim travel "
    "win".split()
)
"""Verbs that double their last letter before an ending."""


def add_s(word: str) -> str:
    """Return the regular third person of a verb or plural of a noun."""
    if word.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{word}es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def add_ed(base: str) -> str:
    """Return the past of a verb as if it were regular (``go`` gives ``goed``)."""
    if base.endswith("e"):
        return f"{base}d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return f"{base[:-1]}ied"
    return f"{base}{base[-1] if base in _DOUBLED else ''}ed"


def _add_ing(base: str) -> str:
    if base.endswith("e") and not base.endswith(("ee", "be")):
        return f"{base[:-1]}ing"
    return f"{base}{base[-1] if base in _DOUBLED else ''}ing"


def third_person(base: str) -> str:
    """Return the form after *he* or *she*."""
    return {"be": "is", "have": "has"}.get(base) or add_s(base)


@cache
def _verbs() -> dict[str, tuple[str, str]]:
    """Return base -> (past, participle)."""
    verbs = {base: (add_ed(base), add_ed(base)) for base in _REGULAR_VERBS.split()}
    for entry in _IRREGULAR_VERBS.split(";"):
        base, past, participle = entry.split()
        verbs[base] = (past, participle)
    return verbs


def past(base: str) -> str:
    """Return the past of a verb in the lexicon.

    Raises:
        KeyError: If the verb is not in the lexicon.
    """
    return _verbs()[base][0]


@cache
def _bases(form: Callable[[str], str]) -> dict[str, str]:
    return {form(base): base for base in _verbs()}


def _participle(base: str) -> str:
    return _verbs()[base][1]


_FORMS: dict[str, Callable[[str], str]] = {
    "V3": third_person,
    "VD": past,
    "VN": _participle,
    "VG": _add_ing,
    "VP": str,
    "VI": str,
}


def base_of(tag: str, form: str) -> str:
    """Return the base of a verb form (``VD``, ``went`` gives ``go``).

    Args:
        tag: Which form it is, in the frames' notation.
        form: The form as written.

    Raises:
        KeyError: If no verb of the lexicon has that form.
    """
    return _bases(_FORMS[tag])[form]


_IRREGULAR_PLURALS = {
    "child": "children",
    "half": "halves",
    "life": "lives",
    "person": "people",
    "tooth": "teeth",
    "wolf": "wolves",
    "goose": "geese",
}
_SINGULARS = {
    **{plural: singular for singular, plural in _IRREGULAR_PLURALS.items()},
    "tomatoes": "tomato",
    "potatoes": "potato",
    "buses": "bus",
}


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return _IRREGULAR_PLURALS.get(noun) or add_s(noun)


def singular(noun: str) -> str:
    """Return the singular of a plural noun."""
    if noun in _SINGULARS:
        return _SINGULARS[noun]
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    if noun.endswith(("sses", "shes", "ches", "xes")):
        return noun[:-2]
    return noun.removesuffix("s")


AGREEMENT = {
    "is": "are",
    "are": "is",
    "was": "were",
    "were": "was",
    "has": "have",
    "does": "do",
    "isn't": "aren't",
    "aren't": "isn't",
    "doesn't": "don't",
}
"""Forms whose number shows wherever they stand: they need no tag."""

PRONOUNS = {
    "I": "me",
    "me": "I",
    "he": "him",
    "him": "he",
    "she": "her",
    "her": "she",
    "we": "us",
    "us": "we",
    "they": "them",
    "them": "they",
    "mine": "my",
    "ours": "our",
    "hers": "her",
    "yours": "your",
    "itself": "it",
    "themselves": "them",
}
PREPOSITIONS = {
    "in": ("on", "at"),
    "on": ("in", "at"),
    "at": ("in", "on"),
    "to": ("at", "for"),
    "for": ("to", "of"),
    "since": ("for",),
    "from": ("of", "by"),
    "of": ("from", "for"),
    "with": ("by", "of"),
    "by": ("with", "of"),
    "about": ("of", "for"),
    "against": ("from", "at"),
}
NEGATIVES = {"any": "no", "anything": "nothing", "ever": "never"}
QUANTIFIERS = {"much": "many", "many": "much", "less": "fewer"}
CONFUSABLES = {
    "accept": "except",
    "break": "brake",
    "buy": "by",
    "by": "buy",
    "hear": "here",
    "heard": "herd",
    "its": "it's",
    "know": "now",
    "knows": "nose",
    "lose": "loose",
    "new": "knew",
    "no": "know",
    "our": "are",
    "passed": "past",
    "past": "passed",
    "quiet": "quite",
    "right": "write",
    "see": "sea",
    "sea": "see",
    "son": "sun",
    "sun": "son",
    "than": "then",
    "their": "there",
    "there": "their",
    "they're": "their",
    "to": "too",
    "too": "to",
    "two": "too",
    "weak": "week",
    "weather": "whether",
    "week": "weak",
    "whether": "weather",
    "whose": "who's",
    "wear": "where",
    "where": "were",
    "which": "witch",
    "won": "one",
    "write": "right",
    "you're": "your",
    "your": "you're",
}
REPEATED = frozenset("the to of in on is for with from at and that".split())
"""Function words that slip in twice."""

MISSPELLINGS: dict[str, str] = dict(
    pair.split(":")
    for pair in """
    about:abaut again:agian airport:airoport already:allready always:allways although:allthough
    answer:anwser another:anouther apologise:appologise because:becouse before:befor
    beautiful:beutiful believe:beleive believes:beleives bicycle:bycicle bought:bougth
    breakfast:brekfast brought:brougth building:bilding castle:castel children:childern
    colleagues:collegues comfortable:confortable cousin:cousen daughter:daugther
    dangerous:dangerus dentist:dentest difficult:dificult doctor:docter engineer:enginer
    enough:enougth evening:evning everything:everthing exercise:excercise expensive:expencive
    experience:experiance explained:explaned family:familly famous:famus finished:finnished
    foreign:foriegn forget:forgett friend:freind friends:freinds garden:gardin
    government:goverment grandmother:grandmather guitar:gitar happy:hapy healthy:helthy
    holiday:holliday homework:homwork hospital:hopital hundred:hunderd interested:intrested
    interesting:intresting island:iland journey:jurney kitchen:kichen knife:nife know:konw
    knowledge:knowlege language:langauge languages:langauges laughed:laughed learned:lerned
    leather:lether library:libary listen:lisen lovely:lovly machine:mashine market:markit
    medicine:medecine meeting:meating minutes:minuts mistake:misstake money:mony month:mounth
    morning:mornning mother:mather mountain:mountin museum:musuem music:musik
    neighbour:nieghbour neighbours:nieghbours never:nevver nobody:noboddy noise:noize
    often:offen opened:openned parents:parrents people:poeple photograph:fotograph
    picture:pictur please:pleas police:polise powerful:powerfull prefers:preffers
    president:presedent professor:proffessor quickly:quikly really:realy receive:recieve
    remember:remeber repaired:repared restaurant:restarant return:retern scientist:sientist
    scientists:sientists secretary:secratary several:severel should:shoud since:sinse
    sister:sistar speaks:speeks station:staition straight:strait strange:stange
    stronger:stronnger student:studant students:studants studied:studyed subject:subjet
    successful:succesful supermarket:supermaket surprise:suprise swimming:swiming
    teacher:teecher telescope:telascope temperature:temprature
    there:ther they:thay think:thinck though:thouhg ticket:tiket tired:tierd together:togather
    tomorrow:tommorow tourist:turist travel:travle twelve:twelv umbrella:umbrela
    understand:undestand university:univercity usually:usualy vegetables:vegtables
    very:verry village:villege visited:visted waiting:wating water:watter weather:wether
    weekend:weakend which:wich  window:windou winter:wintter with:whith
    woman:womman wonderful:wonderfull would:woud writer:writter writing:writting
    written:writen wrong:rong yesterday:yestarday
    """.split()
)
"""Spelling mistakes that people make often; other words get a mechanical slip."""

REAL_WORDS = frozenset(
    "angel angle bats bead been bots bred canceled cast casual cats causal chap char chars "
    "cites clams clan cloths coach coarse costs couch course cram cred curse curses dairy "
    "desert diner dinning exited field filed filled fired fled flies fond form fried from "
    "fund harbor hats herd hoping hose hoses later latter leaning lest neighborhood pace "
    "pains palace pant patent patents pint place places planed planets planing plate ponds "
    "prices prince princes prod quiet quit quite reds rest rods scare scarf sever shred "
    "signing sings solder son soon span spin spot stared stars starts state states statue "
    "status statute steal stop store stores storm super tech tired tow trail trial tried "
    "united untied vice whit woe wok won".split()
)
"""Words that a slip of one letter can give by chance: such a slip is not a spelling mistake."""
