"""Dialogues at a practice, in a shop and about lost property, for the embedded summarize corpus.

Data only: the notation is explained in ``summarize_stories.py`` and ``corpus_text.py``.
"""

from custom_components.corpora.corpus_text import PEOPLE, SURNAMES
from custom_components.corpora.summarize_stories import Story

DOCTOR = Story(
    "doctor",
    {
        "caller/she/her": PEOPLE,
        "doctor": SURNAMES,
        "since": ("last weekend", "Sunday evening", "the day before yesterday", "last week"),
        "complaint": (
            "a toothache", "a sore throat", "a stiff back", "an itchy rash on one arm",
            "an earache", "a cough that won't go away", "a swollen knee",
            "a pain in the left shoulder",
        ),
        "no_time/cause": (
            "I have a meeting then/a meeting", "I'm sitting an exam at that time/an exam",
            "my train leaves just then/a train to catch", "I have to be at work/work",
            "I have a driving lesson then/a driving lesson",
        ),
        "first/day": (
            "this afternoon/tomorrow", "this afternoon/on Thursday", "tomorrow/on Friday",
            "tomorrow/on Wednesday", "on Monday/on Tuesday", "on Monday/next Friday",
        ),
        "time": ("a quarter past nine", "half past ten", "two o'clock", "twenty to four", "five"),
        "bring": ("insurance card", "list of medicines", "last X-ray", "vaccination card"),
    },
    """
Receptionist: {Good morning|Hello|Good afternoon}, Dr {doctor}'s practice. How can I help you?
{caller}: {Hello|Hi|Good morning}, {this is|my name is} {caller}. I've had {complaint} since
  {since}, and I'd like to see the doctor.
? Receptionist: {I'm sorry to hear that|That sounds unpleasant}. Is it getting worse? // {caller}:
  {A little, especially at night|It comes and goes, but it keeps me awake|Not really, but it isn't
  getting better either}.
Receptionist: Have you been here before?
{caller}: {Yes, but that was years ago|Yes, I came for a check-up in the spring|No, I only moved
  here last month}.
? Receptionist: {Then let me open your file|One moment, the computer is slow today}. {Thank you for
  waiting|Here we are}. // {caller}: {No problem|Take your time}.
Receptionist: {The doctor could see you|I have something free} {first}. Would that suit you?
{caller}: I'm afraid not, because {no_time}. {Is there anything later?|What else do you have?}
? Receptionist: {It's a busy week, half the town has a cold|Let me look, we are rather full}. //
  {caller}: {I can imagine|I understand}. {I don't mind waiting a bit longer|Any other day is fine}.
Receptionist: {What about|Could you come} {day} at {time}?
{caller}: {Yes, that works|That's perfect|That suits me much better}. {Thank you|Thanks a lot}.
? {caller}: Should I take anything for it until then? // Receptionist: {Rest and drink plenty of
  water|Something against the pain from the chemist is fine}. If it gets much worse, call us at
  once.
Receptionist: Then I'll put you down for {time}. Please bring your {bring} with you.
{caller}: {I will|I'll remember that}. {Goodbye|See you then}.
? Receptionist: {Get well soon|All the best until then}!
""",
    (
        "{caller} has had {complaint} since {since} and calls Dr {doctor}'s practice. {she} cannot "
        "come {first} because of {cause}, so {she} gets an appointment {day} at {time}.",
        "{caller} calls Dr {doctor}'s practice about {complaint} and gets an appointment {day} at "
        "{time}. {she} should bring {her} {bring}.",
    ),
    "\n",
)  # fmt: skip

SHOP = Story(
    "shop",
    {
        "buyer/she/her": PEOPLE,
        "item": (
            "kettle", "toaster", "desk lamp", "radio", "coffee machine", "hairdryer", "alarm clock",
            "electric drill",
        ),
        "fault": (
            "stops after a minute", "makes a terrible noise", "doesn't switch on any more",
            "smells of burnt plastic", "only works when it wants to",
        ),
        "bought": ("last Saturday", "two weeks ago", "a month ago", "ten days ago", "in March"),
        "price": ("19", "24", "35", "48", "60", "79"),
        "offer/refusal": (
            "repair it, which takes three weeks/I can't wait three weeks for it",
            "exchange it for the same model/I don't trust that model any more",
            "give you a voucher/I hardly ever shop here",
        ),
        "solution/outcome": (
            "give you your money back/the full price back",
            "let you have the better model at no extra charge/the better model at no extra charge",
            "give you a new one and ten euros for the trouble/a new one and ten euros",
        ),
    },
    """
{Assistant: Hello, can I help you?|Assistant: Good morning. Are you being served?}
{buyer}: I hope so. I bought this {item} here {bought}, and {now it|after a few days it} {fault}.
? Assistant: {That shouldn't happen|I'm sorry about that}. Did you drop it or get it wet? //
  {buyer}: {Certainly not|No, I followed the instructions}. {I've used it four times at most|It
  looks like new, as you can see}.
Assistant: {May I see the receipt?|Do you have the receipt with you?}
{buyer}: {Here you are|Yes, here it is}. {I paid|It cost} {price} euros.
? Assistant: {Thank you|Just a second}. {It's still under guarantee|You have two years of guarantee
  on it}. // {buyer}: {I thought so|That's good to know}.
Assistant: {We can|What we can do is} {offer}.
{buyer}: {To be honest, that doesn't help me|I'm not happy with that}, because {refusal}.
? Assistant: {I'd have to ask my manager about anything else|That's what we usually do}. // {buyer}:
  {Please do that|Then I'd like to speak to the manager}. {I have time|I'll wait here}.
Assistant: {All right|I've just asked}. {As an exception|Just this once}, we will {solution}.
{buyer}: {That's very fair|That's kind of you|I'm glad to hear that}. {Thank you|Thanks a lot}.
? {buyer}: {Will you send the old one back to the factory?|What happens to the old one?} //
  Assistant: {They will take it apart and look for the fault|It goes back to the maker}. {We had the
  same trouble with another one last week|Perhaps it was a bad batch}.
Assistant: {Please sign here|I only need your signature here}. {And sorry again|Have a nice day}.
? {buyer}: {There you go|Done}. {Goodbye|Have a nice day, too}!
""",
    (
        "{buyer} brings back a {item} bought {bought} that {fault}. After turning down the first "
        "offer {she} gets {outcome}.",
        "The {item} that {buyer} bought for {price} euros {fault}. The shop agrees to give {buyer} "
        "{outcome}.",
    ),
    "\n",
)  # fmt: skip

LOST = Story(
    "lost",
    {
        "owner/she/her": PEOPLE,
        "item": (
            "black umbrella", "green backpack", "violin case", "red suitcase", "leather glove",
            "blue sports bag", "silver laptop",
        ),
        "place": (
            "train from Leeds", "number 12 tram", "night bus", "ferry", "train to the airport",
            "underground",
        ),
        "day": ("this morning", "yesterday evening", "on Sunday", "the day before yesterday"),
        "mark": (
            "a sticker of a frog", "a torn label", "a name written inside", "a yellow ribbon",
            "a deep scratch", "a burn mark",
        ),
        "office": ("main station", "harbour", "bus depot", "town hall", "airport"),
        "fee": ("three", "four", "five", "seven", "eight"),
        "until": ("six", "seven", "eight"),
        "proof": ("passport", "identity card", "driving licence", "ticket"),
    },
    """
{owner}: {Hello|Good morning}, is that the lost property office? I left something on the {place}.
Clerk: {That happens every day|You are the tenth today}. What did you lose, and when?
{owner}: a {item}, {day}. {I only noticed when I was at home|I fell asleep and got off in a hurry}.
? Clerk: {Were you sitting upstairs or downstairs?|Do you remember where you sat?} // {owner}:
  {Right at the back, next to the door|At the front, by the window}.
Clerk: {Can you describe it?|We have several of those here.} {Is there anything special about
  it?|How would I recognise yours?}
{owner}: {Yes, it has|There's one thing, it has} {mark}.
? Clerk: {One moment, I'll go and look|Please hold the line}. {The shelves are full today|This may
  take a minute}. // {owner}: {Of course, I'll wait|Take all the time you need}.
Clerk: {Good news|You're lucky}! {It's here, with {mark}|I have it in my hand}. {Somebody handed it
  in an hour ago|The driver found it}.
{owner}: {Oh, what a relief|I can't believe it}! {Where can I collect it?|Where do I have to go?}
Clerk: {Come to|It's in} our office at the {office}. We're open until {until} o'clock.
? {owner}: {Could a friend collect it for me?|Could you send it to me?} // Clerk: {I'm afraid you
  have to come yourself|No, we can't do that}.
{owner}: {Do I have to pay anything?|Does it cost anything?}
Clerk: There's a fee of {fee} euros. And please bring your {proof}.
{owner}: {I'll be there before you close|I'm on my way}. {Thank you|You've saved my day}!
? Clerk: {You're welcome|Glad to help}. {And keep an eye on it next time|See you soon}.
""",
    (
        "{owner} left a {item} on the {place} {day}, and it has been found. {she} can collect it "
        "at the {office} for a fee of {fee} euros.",
        "The lost property office has found {owner}'s {item}, left on the {place} {day}. {she} "
        "needs {her} {proof} and {fee} euros to collect it at the {office} before {until} o'clock.",
    ),
    "\n",
)  # fmt: skip
