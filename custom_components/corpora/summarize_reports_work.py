"""Reports from an office, a club and a school, for the embedded summarize corpus.

Data only: the notation is explained in ``summarize_stories.py`` and ``corpus_text.py``.
"""

from custom_components.corpora.corpus_text import DAYS, PEOPLE, SURNAMES
from custom_components.corpora.summarize_stories import Story

PROJECT = Story(
    "project",
    {
        "lead/she/her": PEOPLE,
        "other/o_she/o_her": PEOPLE,
        "product": (
            "booking page", "delivery app", "ticket machine", "customer portal", "payroll program",
            "warehouse scanner",
        ),
        "done": (
            "the new search", "the login by fingerprint", "the Spanish translation",
            "the monthly statistics", "the export to spreadsheets",
        ),
        "problem/fix": (
            "orders with more than 50 lines are lost/splits long orders into several parts",
            "the program crashes on older phones/uses a lighter map on older phones",
            "prices are rounded wrongly/counts in cents throughout",
            "customers get the same message twice/gives each message a number of its own",
        ),
        "days": ("two", "three", "four", "six"),
        "old_date/new_date": (
            "3 May/17 May", "12 June/19 June", "1 September/15 September", "20 October/3 November",
            "7 March/21 March",
        ),
        "spent": ("40", "55", "62", "70", "85"),
        "need": (
            "a second tester", "a faster server", "somebody who writes the manual",
            "two more phones for tests",
        ),
        "week": ("12", "19", "23", "31", "38", "45"),
    },
    """
Status of the {product}, week {week}, written by {lead}.
This week we finished {done}. {It took a little longer than planned, but the tests are green|The
  first users say that they like it}.
? {Thanks to everybody who stayed late on Thursday|The demonstration on Wednesday went well}. {The
  sales team wants to show it to customers at once|There were hardly any questions}.
? We also {updated all the libraries that we use|removed about a thousand lines of old code}.

The main problem is that {problem}. {A customer told us about it on Monday|We found it by chance}.
{other} {looked into it|took the time to find out why} and found the cause after {days} days. {The
  new version|The correction, which is being tested now,} {fix}.
? {It only happens when two people work at the same time|The mistake has been there for a year},
  {which is why our tests never showed it|so other teams may have it, too}.
? {I have added a test, so that it cannot come back|We will check the older versions as well}.

{Because of this|For this reason} the release moves from {old_date} to {new_date}.
? {Marketing has been told|The customers will hear about it tomorrow}, {and the printed material can
  still be changed|and nobody was very surprised}.
So far we have spent {spent} per cent of the budget. {That is what we expected|This is slightly more
  than planned}.
? {Travel cost less than we thought|The licences became more expensive in spring}.
What we need now is {need}. {Without it the new date is at risk|I would like to talk about that on
  Monday}.
? {Next week {other} is on holiday|Two of us are at a fair next week}, {so please be patient with
  questions|so the meeting on Friday is cancelled}.
? {Please send corrections to this report to me|The next report comes in a week}.
""",
    (
        "The release of the {product} moves from {old_date} to {new_date} because {problem}. "
        "{other} has found the cause; the team needs {need}.",
        "The team has finished {done} of the {product} and spent {spent} per cent of the budget. "
        "The release is now planned for {new_date}.",
    ),
    " ",
)  # fmt: skip

CLUB = Story(
    "club",
    {
        "club": ("choir", "chess club", "rowing club", "garden club", "film club", "hiking club"),
        "day": DAYS,
        "present": ("14", "19", "23", "27", "31"),
        "chair/c_she/c_her": PEOPLE,
        "new/she/her": PEOPLE,
        "old/o_she/o_her": PEOPLE,
        "reason": (
            "is moving to another town", "has become a grandparent", "has started to study again",
            "has done it for twelve years",
        ),
        "fee/before": ("30/24", "45/40", "60/50", "72/65"),
        "because": (
            "the rent for the room has gone up", "the roof has to be repaired",
            "there are fewer members than last year", "insurance has become more expensive",
        ),
        "yes/no": ("17/6", "12/2", "20/7", "15/4"),
        "event": ("summer party", "concert", "open day", "trip to the sea", "tournament"),
        "date": ("14 June", "2 July", "28 August", "13 September", "5 October"),
        "task": ("the food", "the invitations", "the music", "the car sharing"),
    },
    """
Minutes of the meeting of the {club} on {day}; {present} members were present.
{chair} opened the meeting {at seven|a little late} and {welcomed two guests|thanked everybody for
  coming in spite of the snow}.
? {The minutes of the last meeting were accepted without changes|A member asked for more light in
  the car park}.
? {The treasurer showed the figures for last year|The accounts had been checked by two members},
  {and everything was in order|and only one receipt was missing}.

Then the members talked about the fee. {The board wants|The board proposed} to raise it from
  {before} to {fee} euros a year, because {because}.
? {Some members found that too much for families|One member asked whether the club could sell
  something instead}. {Others said that a cup of coffee costs more than the fee for a month|The
  treasurer explained that the savings would be gone in a year}.
The members agreed by {yes} votes to {no}. {The new fee applies from January|It will be collected in
  February as usual}.
? {Students still pay half|Children stay free}.

{old} {reason} and gave up the post of secretary. {There was long applause|The chair handed over a
  bunch of flowers}.
{new} was elected {as the new secretary|to follow in the post}, {with no votes against|by a large
  majority}.
? {"I type faster than I sing," the new secretary said|The new secretary joined only two years ago},
  {and everybody laughed|which shows how quickly one can grow into the club}.

The {event} will take place on {date}. {new} and {chair} will take care of {task}.
? {Helpers are still needed|A list for helpers is on the board}, {especially for the morning|above
  all for tidying up}.
? {Somebody suggested printing T-shirts, but there was no majority|If it rains, it will be held
  indoors}.
The meeting closed {at half past nine|after two hours}. {Most people stayed for a drink|The next one
  is in the spring}.
""",
    (
        "The {club} raised its yearly fee from {before} to {fee} euros because {because}. {new} "
        "was elected secretary, and the {event} will be on {date}.",
        "{new} follows {old}, who {reason}, as secretary of the {club}. A fee of {fee} euros was "
        "agreed by {yes} votes to {no}.",
    ),
    " ",
)  # fmt: skip

TRIP = Story(
    "trip",
    {
        "class": ("5a", "6b", "7c", "8a", "9b"),
        "teacher": SURNAMES,
        "place/sight": (
            "York/the railway museum", "Bath/the Roman baths", "Bergen/the fish market",
            "Ghent/the castle", "Lucerne/the wooden bridge", "Bremen/the space museum",
        ),
        "days": ("two", "three", "four", "five"),
        "mishap/cure": (
            "the bus broke down on the motorway/a farmer took everybody to the next village",
            "two suitcases went to the wrong hostel/a taxi brought them just before dinner",
            "the hostel had given the rooms to another school/a gym was found for the first night",
            "everybody got lost in the old town/a policeman on horseback showed the way",
        ),
        "hours": ("two", "three", "four", "five"),
        "best": (
            "a night walk with torches", "a boat ride at sunset", "a day on a dairy farm",
            "a lesson in baking bread", "a visit to a radio station",
        ),
        "price": ("80", "95", "110", "140"),
        "earned": ("selling cake", "washing cars", "collecting old paper", "a flea market"),
        "next": ("Dublin", "Prague", "Lisbon", "Oslo"),
    },
    """
Class {class} went to {place} with teacher {teacher} for {days} days.
{The journey began badly|It did not start well}: {mishap}. {But|In the end} {cure}, and only {hours}
  hours were lost.
? {Nobody complained, because it felt like an adventure|Some parents heard of it before the school
  did}, {and the story has grown with every telling|thanks to the children's phones}.
? {The rooms were small, but the breakfast was large|At night it took a while until it was quiet}.

On the first full day the class visited {sight}. {A guide in costume told stories|Everybody had to
  answer ten questions about it}.
? {The quiz was won by the group that had read the signs|Somebody asked a question that the guide
  could not answer}, {and the prize was a bag of sweets|so he promised to write a letter}.
? {It rained all afternoon|The sun shone for the first time in weeks}. {Most of us bought
  postcards|We ate chips on the steps of the town hall}.
{What everybody will remember is|The best part, all agreed, was} {best}.
? {Even those who had not wanted to come liked it|One boy said he would like to do that for a
  living}.

The trip cost {price} euros for each pupil. The class had earned a third of the money by {earned}.
? {The school paid for the museum tickets|A former pupil gave the rest}.
? {On the way home nearly everybody slept|On the way back the bus sang until nobody had a voice
  left}.
{Next year the class wants to go to|For next year they have chosen} {next}. {Saving has already
  begun|The vote was close}.
""",
    (
        "Class {class} spent {days} days in {place}. {mishap}, but the class enjoyed the trip, "
        "above all {best}.",
        "On a trip to {place} with {teacher}, class {class} saw {sight} and had {best}. Each pupil "
        "paid {price} euros, a third of which came from {earned}.",
    ),
    " ",
)  # fmt: skip
