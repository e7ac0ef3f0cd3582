"""News reports for the embedded summarize corpus.

Data only: the notation is explained in ``summarize_stories.py`` and ``corpus_text.py``.
"""

from custom_components.corpora.corpus_text import DAYS, SURNAMES
from custom_components.corpora.summarize_stories import Story

_TOWNS = (
    "Ashford", "Bellmont", "Carlow", "Dunmore", "Eastham", "Fairview", "Glenbrook", "Hartfield",
    "Kingsley", "Lindale", "Marlow", "Norwood",
)  # fmt: skip


STORM = Story(
    "storm",
    {
        "town": _TOWNS,
        "when": ("on Monday night", "on Thursday evening", "early on Sunday", "on Friday evening"),
        "damage": (
            "the roof of the sports hall", "the glass front of the library",
            "the wooden footbridge", "the greenhouses of the garden centre",
            "the scaffolding at the church",
        ),
        "trees": ("40", "60", "90", "120", "200"),
        "homes/hours": (
            "800/six", "1,200/nine", "2,500/eleven", "600/four", "3,000/fourteen", "1,700/seven",
        ),
        "hurt_is/hurt_was": (
            "Nobody was hurt/nobody was hurt",
            "One firefighter was slightly injured/one firefighter was slightly injured",
            "Two people were treated for minor cuts/two people suffered minor cuts",
        ),
        "closed/reopen": (
            "the railway line to the coast/on Wednesday", "the main road to the north/tomorrow",
            "the primary school/next Monday", "the tunnel under the river/at the weekend",
        ),
        "cost": ("two", "three", "four", "half a"),
        "mayor": SURNAMES,
    },
    """
A {heavy|violent|sudden} storm hit {town} {when}.
It destroyed {damage} and brought down {more than|about} {trees} trees.
? {The wind reached speeds that have not been measured here for twenty years|Within minutes the rain
  turned several streets into streams}.
? {Garden chairs and rubbish bins flew through the air|Hailstones as large as walnuts broke car
  windows}, {residents reported|one driver said}.
{Some|About} {homes} homes were without electricity for {hours} hours.
? {In one house the power failed in the middle of a birthday party|Many people sat by candlelight}.
  {Neighbours helped each other with torches and hot soup|A bakery gave away its bread before it
  went stale}.

The fire brigade was called out {again and again|all night long}.
{hurt_is}.
? {An old man who was trapped in his car was freed through the window|A horse that had run away was
  found unharmed the next day}.
? {"We have practised for nights like this," said one firefighter|"I have never seen anything like
  it," said a woman whose cellar was flooded}.
{closed} {is|remains} closed and {is expected to|will probably} reopen {reopen}.
? {Until then buses take another route|People are asked to allow more time for their journeys}.

Mayor {mayor} {thanked the helpers and put|praised the helpers and estimated} the damage at {cost}
  million euros.
? {The insurance companies have opened an office in the town hall|A fund for families who lost their
  belongings has been set up}.
The town will {plant new trees in the autumn|check all its old trees before the winter}.
? {The weather service expects calmer days now|More rain is forecast, but no wind}.
""",
    (
        "A storm in {town} {when} destroyed {damage} and left {homes} homes without electricity "
        "for {hours} hours; {hurt_was}.",
        "{when}, a storm brought down {trees} trees in {town} and destroyed {damage}. Mayor "
        "{mayor} puts the damage at {cost} million euros.",
        "After a storm in {town}, in which {hurt_was}, {closed} will stay closed until it reopens "
        "{reopen}. The damage is put at {cost} million euros.",
    ),
    " ",
)  # fmt: skip

LIBRARY = Story(
    "library",
    {
        "town": _TOWNS,
        "building": ("library", "swimming pool", "youth centre", "museum", "sports centre"),
        "day": DAYS,
        "years": ("two", "three", "four", "five"),
        "late/why": (
            "eight months/a builder went bankrupt", "a year/old pipes were found under the ground",
            "half a year/the windows were delivered in the wrong size",
            "five months/bats were nesting in the attic",
        ),
        "cost/planned": ("6.2/4.8", "9.5/8", "12/10.5", "3.4/2.9", "7.1/6.5"),
        "feature": (
            "a roof garden that is open to everybody", "a café run by the deaf association",
            "a hall for 300 people", "a workshop where things can be repaired",
        ),
        "visitors": ("600", "900", "1,500", "2,000"),
        "free": ("the end of the month", "the end of the year", "the summer holidays"),
        "architect": SURNAMES,
        "next": ("the old fire station", "the bus station", "the town park", "the indoor market"),
    },
    """
After {years} years of work the new {building} in {town} opened its doors on {day}.
{About|More than} {visitors} people came {on the first day|to see it}, {and some had queued since
  dawn|although it was pouring with rain}.
? {A brass band played in front of the entrance|Children from the primary school sang a song that
  they had written for the day}.
? {The mayor cut the ribbon twice, because the first photo was blurred|The speeches were short, as
  the mayor had promised}.
The {building} opens {late} later than planned, because {why}.
{The cost rose|That is also why the cost rose} from {planned} to {cost} million euros.
? {Some councillors had asked for the work to be stopped|A group of citizens had collected
  signatures against it}, {but on the day itself nobody mentioned that|and they came to the opening
  as well}.

The {heart|best part} of the building is {feature}.
Architect {architect} {wanted|says she wanted} {a place where nobody has to buy anything|a house
  that people use from morning to night}.
? {The walls are made of wood from the region|The heat comes from the river nearby}, {which keeps
  the running costs low|which visitors can follow on a screen}.
? {"I'll be here every day," said a pensioner|"It's much bigger than I thought," said a girl of
  nine}. {Others found the seats too hard|Others missed the old building a little}.

Entrance is free until {free}. {After that a ticket costs four euros|Opening hours are from nine to
  eight}.
? {Guided tours take place every Saturday|Forty volunteers help to run it}.
The town's next project is {next}. {Work there starts in spring|The plans can be seen in the town
  hall}.
""",
    (
        "The new {building} in {town} opened {late} late, because {why}. It cost {cost} million "
        "euros instead of {planned}.",
        "{town} has opened its new {building} after {years} years of work, and {visitors} people "
        "came. Entrance is free until {free}.",
    ),
    " ",
)  # fmt: skip

MATCH = Story(
    "match",
    {
        "home": _TOWNS,
        "guest": _TOWNS,
        "sport": ("football", "hockey"),
        "result/half": ("3-2/0-2", "4-3/1-3", "2-1/0-1", "5-4/2-4", "3-1/0-1"),
        "scorer": SURNAMES,
        "keeper": SURNAMES,
        "coach": SURNAMES,
        "minute": ("first", "second", "third", "last"),
        "crowd": ("1,100", "2,400", "3,800", "5,200"),
        "place/before": ("second/fifth", "third/sixth", "fourth/seventh", "first/third"),
        "out": ("a broken hand", "a torn muscle", "a knee injury", "a fever"),
        "next": ("the cup final", "the match against the leaders", "two away games", "the derby"),
    },
    """
For half an hour it looked like an easy evening for {guest}, but {home} won the {sport} match
  {result} in the end.
{About {crowd} people|A crowd of {crowd}} {watched|saw} {the game|it} {in pouring rain|in the new
  arena}.
? {The visitors were faster from the start|At first the home team lost every second ball}, {and the
  whistles grew louder|and the coach shouted until he was hoarse}.
At half-time the score was {half}, {and hardly anyone believed in a win|and some people went home}.
? {One attack hit the post|A goal was not given}, {which made things worse|which still annoyed the
  players afterwards}.
? {Nobody knows what was said in the dressing room|"We just promised each other to run," said one
  player}.

After the break {home} {came back|was a different team}.
{scorer} scored the winning goal in the {minute} minute of extra time. {The ball rolled over the
  line as if in slow motion|It was a shot from far out}.
? {The roof nearly came off|Strangers hugged each other in the stands}.
Before that goalkeeper {keeper} had saved {two penalties|three shots from close range}.
? {"I guessed the right corner, that's all," the goalkeeper said|The goalkeeper had only come into
  the team that morning}. {The regular one is ill|Nobody had expected that}.

With this win {home} climbs from {before} to {place} place in the table.
Coach {coach} {called it the best game of the season|said that he had aged by years}.
? {The guests' coach left without a word|"We stopped playing too early," said the guests' captain}.
{The only bad news|One thing spoils the joy}: the captain will be missing for weeks with {out}.
{Next comes|The next task is} {next}. {Tickets are almost sold out|It will be shown on television}.
""",
    (
        "{home} beat {guest} {result} at {sport} after a half-time score of {half}; {scorer} "
        "scored the winning goal. The captain is out with {out}.",
        "{home} turned a {half} into a {result} win against {guest} and is now in {place} place.",
    ),
    " ",
)  # fmt: skip
