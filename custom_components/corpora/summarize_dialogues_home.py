"""Dialogues between friends and about a flat, for the embedded summarize corpus.

Data only: the notation is explained in ``summarize_stories.py`` and ``corpus_text.py``.
"""

from custom_components.corpora.corpus_text import DAYS, PEOPLE, SURNAMES
from custom_components.corpora.summarize_stories import Story

OUTING = Story(
    "outing",
    {
        "a/a_she/a_her": PEOPLE,
        "b/b_she/b_her": PEOPLE,
        "day": DAYS,
        "plan/doubt": (
            "go swimming in the lake/the water is still far too cold",
            "cycle to the old mill/my bike has a flat tyre",
            "climb the tower of the cathedral/I can't stand heights",
            "take the boat to the island/I get seasick on every boat",
            "have a picnic in the park/they say it will pour all day",
            "watch the new horror film/I won't sleep for a week after that",
        ),
        "instead": (
            "visit the science museum", "try the new bowling alley", "cook a big curry together",
            "go to the flea market", "see the photo exhibition", "play board games at the café",
        ),
        "time": ("ten", "eleven", "one", "two", "three", "four"),
        "place": (
            "in front of the station", "at the bus stop by the bridge", "outside the library",
            "at the fountain", "at the corner of the market square",
        ),
        "thing": ("a cake", "the camera", "some sandwiches", "a pack of cards", "two umbrellas"),
    },
    """
{a}: {Hi|Hello|Hey} {b}! {Are you doing anything|Do you have any plans|Are you free} on {day}?
{b}: {Nothing special|Not yet|I was going to tidy my flat, but that can wait}. {Why?|What do you
  have in mind?}
{a}: I thought we could {plan}. {I've been thinking about it all week|It would do us good}.
{b}: {That's a nice idea, but|I'd rather not, because|Hmm,} {doubt}.
? {a}: {Oh, I forgot about that|I hadn't thought of that}. // {b}: {Don't worry|We could still do it
  another time}. {Let's find something else|There must be something we both like}.
{a}: {All right|Fair enough|I see}. Then why don't we {instead}?
{b}: {Oh yes, I'd love that|Great, I'm in|Now that sounds like fun}! {When should we meet?|What
  time?}
? {a}: {I have to call my parents first|I want to sleep in for once}, so not too early. // {b}:
  {That's fine with me|I'm no early bird either}.
{a}: {Let's say|I'd suggest} {time} o'clock.
{b}: {Good|Perfect}. {I'll be|Let's meet} {place}.
? {a}: {Should we ask the others?|Shall I ask my sister, too?} // {b}: {The more, the merrier|Of
  course, just let me know how many we are}.
? {b}: {Is it expensive?|How much money should I bring?} // {a}: {Hardly anything|Not much, and I
  still owe you a coffee}.
{a}: {Okay, and I'll bring {thing}|Then I'll take care of {thing}}.
{b}: {You always think of everything|Lovely}. See you on {day}!
? {a}: {See you|Bye}! {And don't be late this time|Call me if anything changes}.
""",
    (
        "{a} and {b} will {instead} on {day}, since {b} does not want to {plan}. They meet {place} "
        "at {time} o'clock.",
        "{b} turns down {a}'s idea to {plan} on {day}. They decide to {instead} and will meet at "
        "{time} o'clock {place}; {a} brings {thing}.",
    ),
    "\n",
)  # fmt: skip

FLAT = Story(
    "flat",
    {
        "tenant/she/her": PEOPLE,
        "landlord": SURNAMES,
        "street": (
            "Mill Lane", "Station Road", "Garden Street", "Church Hill", "River Walk",
            "Park Avenue",
        ),
        "rooms": ("two", "three", "four"),
        "floor": ("ground", "first", "second", "third", "top"),
        "rent": ("540", "620", "680", "750", "820", "910"),
        "from": ("in May", "in June", "in September", "in October", "in two weeks", "at New Year"),
        "plus": (
            "a balcony over the courtyard", "a new kitchen", "a cellar for bicycles", "a garden",
            "a view of the river",
        ),
        "minus": (
            "there is no lift", "the street is loud in the morning", "the bathroom has no window",
            "the heating is old", "there is nowhere to park",
        ),
        "pet/verdict": (
            "a cat/cats are welcome", "a small dog/a small dog is no problem",
            "a piano/a piano may be played until eight",
            "a lot of house plants/the plants are no problem as long as the floor stays dry",
        ),
        "day": DAYS,
        "time": ("noon", "five o'clock", "half past five", "six o'clock", "a quarter past six"),
    },
    """
Landlord: {landlord} speaking, {hello|good evening}.
{tenant}: {Hello|Good evening}, my name is {tenant}. I'm calling about the {rooms}-room flat in
  {street}. Is it still available?
Landlord: {Yes, it is|You're lucky, it is}. {It's on the {floor} floor|You'll find it on the {floor}
  floor}, and the rent is {rent} euros a month.
? {tenant}: {Is that with heating and water?|Does that include the heating?} // Landlord:
  {Everything but the electricity|Heating is included, electricity isn't}.
{tenant}: {Could you tell me a bit more about it?|What else should I know?}
Landlord: {It has|The best thing about it is that it has} {plus}. {I have to be honest, though|On
  the other hand}: {minus}.
? {tenant}: {That wouldn't bother me much|I've lived with worse}. // Landlord: {Good, others have
  said no because of it|I prefer to say it at once}.
{tenant}: I have {pet}. {Would that be all right?|I hope that isn't a problem.}
Landlord: {Don't worry,|The neighbours are easy-going,} {verdict}.
? Landlord: {And what do you do, if I may ask?|Do you work in town?} // {tenant}: {I work at the
  hospital|I'm a teacher at the school round the corner|I've just started at the town hall}. {It
  would be a five-minute walk|I could sleep longer every morning}.
{tenant}: {When would it be free?|And when could I move in?}
Landlord: {from}. {The painters are still in there|The last tenant has only just left}.
? {tenant}: {How long is the contract?|Is there a deposit?} // Landlord: {A year at first|Two
  months' rent, as usual}. {I hope people stay longer, of course|You'd get it all in writing}.
{tenant}: {I'd love to see it|May I have a look at it}. {I'm free after work|Any evening is fine}.
Landlord: {Come|How about} {day} at {time}. {I'll wait|I'll meet you} in front of the house.
{tenant}: {day} at {time}, {that's perfect|I'll be there}. {Thank you very much|Goodbye}!
? Landlord: {Goodbye|See you then}.
""",
    (
        "{tenant} asks {landlord} about a {rooms}-room flat in {street}, which costs {rent} euros "
        "a month and is free {from}. {she} will see it on {day} at {time}.",
        "A {rooms}-room flat in {street} for {rent} euros has {plus}, but {minus}. {tenant} will "
        "see it on {day} at {time}.",
        "{tenant} arranges to see {landlord}'s flat in {street} on {day} at {time}; bringing {pet} "
        "is allowed.",
    ),
    "\n",
)  # fmt: skip

FAVOUR = Story(
    "favour",
    {
        "a/a_she/a_her": PEOPLE,
        "b/b_she/b_her": PEOPLE,
        "trip/away": (
            "fly to my cousin's wedding in Porto/a wedding in Porto",
            "go to a course in Vienna/a course in Vienna",
            "visit my grandmother in Gdansk/a visit to Gdansk",
            "hike in the mountains/a hike in the mountains",
            "have a small operation on my knee/an operation on the knee",
        ),
        "days": ("three days", "five days", "a week", "ten days", "two weeks"),
        "task/task_long": (
            "water my tomatoes/water the tomatoes", "feed my cat/feed the cat",
            "walk my dog/walk the dog", "look after my fish/look after the fish",
        ),
        "how_often": ("every morning", "every evening", "twice a day", "every second day"),
        "key": (
            "under the blue flowerpot", "with the baker downstairs", "in the letter box",
            "in the garden shed",
        ),
        "but/cover": (
            "I'm at my parents' on Sunday/my brother can come on Sunday",
            "I'm working late on Thursday/my flatmate can come on Thursday",
            "I'm at the dentist's on Friday/my neighbour can come on Friday",
        ),
        "return": (
            "lend you my van for your move", "help you paint your kitchen",
            "cook dinner for you and your friends", "repair your bike",
            "babysit for a whole evening",
        ),
    },
    """
{a}: {b}, {do you have a minute?|can I ask you something?} {I need a favour|It's about next week}.
{b}: {Sure, what is it?|Of course. What's up?|For you I always have a minute.}
{a}: I'm going to {trip} and I'll be away for {days}. {Somebody has to|I need somebody to} {task}.
? {b}: {Oh, how nice|Sounds exciting}! {When do you leave?|Are you looking forward to it?} // {a}:
  {On Monday, very early|In a few days}, {and I haven't packed a thing|and I'm nervous already}.
{b}: {And you thought of me|I think I could do that}. {How often|How much work is it}?
{a}: {It has to be done {how_often}|Only {how_often}}. {It takes ten minutes|It's quickly done}.
? {b}: {I've never done that before.|What if I do something wrong?} // {a}: {There's nothing to
  it|You can't do anything wrong}. {I'll leave you a note with everything on it|You can always call
  me}.
{b}: {The only problem is that|There's one thing:} {but}. {Still, {cover} instead of me|But {cover}
  and do it}.
{a}: {That's perfect|That would be wonderful}. {Then everything is settled|You're a treasure}.
{b}: {And how do I get in?|Where do I find the key?}
{a}: The key is {key}. {Please put it back there when I'm home again|Only the two of us know that}.
? {b}: {Should I empty the letter box as well?|And the post?} // {a}: {If you don't mind|That would
  be great}. {Just put everything on the kitchen table|There won't be much}.
{a}: {And to thank you|In return}, I'll {return}.
{b}: {I'd have done it anyway, but I won't say no|That's a deal|I'll remind you of that}!
? {a}: {Thank you so much|You've saved me}. // {b}: {Don't mention it|Have a safe trip}.
""",
    (
        "{b} will {task_long} {how_often} for {days} while {a} is away for {away}. The key is "
        "{key}.",
        "{a} asks {b} to {task_long} for {days} because of {away}. {b} agrees and learns that the "
        "key is {key}.",
    ),
    "\n",
)  # fmt: skip
