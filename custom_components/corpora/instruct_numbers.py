"""Conversations with numbers, for the embedded instruct corpus: units, shopping, cooking, time.

Every result is computed here, in decimals, whole cents, minutes or days. Each function returns a
``Dialog``.
"""

import random
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal

from custom_components.corpora.corpus_text import DAYS, fill
from custom_components.corpora.instruct_language import Dialog

Exchange = tuple[str, str]
"""What the user says and what the assistant answers."""

_UNITS = (
    ("mile", "miles", "kilometres", Decimal("1.609")),
    ("inch", "inches", "centimetres", Decimal("2.54")),
    ("foot", "feet", "metres", Decimal("0.3048")),
    ("pound", "pounds", "kilograms", Decimal("0.4536")),
    ("ounce", "ounces", "grams", Decimal("28.35")),
    ("gallon", "gallons", "litres", Decimal("3.785")),
    ("acre", "acres", "hectares", Decimal("0.4047")),
)
"""US customary units; factors rounded as in NIST SP 811, appendix B."""


def convert_units(rng: random.Random) -> Dialog:
    """Convert an amount; then how it is done, another amount, or the way back."""
    one, unit, metric, factor = rng.choice(_UNITS)
    first, second, third = rng.sample(range(2, 90), 3)
    opening = (
        f"{{How many {metric} are {first} {unit}?|What is {first} {unit} in {metric}?|My book says "
        f"{first} {unit}. How much is that in {metric}?}}",
        f"{first} {unit} are {{about|roughly}} {_round(first * factor)} {metric}.",
    )
    how = (
        "{How did you get that?|How can I work that out myself?|What do I have to multiply by?}",
        f"One {one} is {factor} {metric}, so multiply: {first} \u00d7 {factor} = "
        f"{first * factor:f}, {{which is about|rounded}} {_round(first * factor)}.",
    )
    another = (
        f"{{And {second}|What about {second}|And if it were {second}}} {unit}?",
        f"{{That would be|That makes}} {_round(second * factor)} {metric}.",
    )
    back = (
        f"{{Now the other way round|And backwards}}: {third} {metric} in {unit}?",
        f"Divide instead of multiplying: {third} ÷ {factor} is about {_round(third / factor)} "
        f"{unit}.",
    )
    return _build(("units", unit, str(first)), opening, [how, another, back], rng)


_GOODS = (
    ("notebook", "notebooks"), ("pen", "pens"), ("candle", "candles"), ("plant", "plants"),
    ("bar of soap", "bars of soap"), ("postcard", "postcards"), ("mug", "mugs"),
    ("tin of paint", "tins of paint"), ("light bulb", "light bulbs"), ("map", "maps"),
)  # fmt: skip


def add_up_shopping(rng: random.Random) -> Dialog:
    """Add up two kinds of goods; then the change, a discount, or how many more fit a budget."""
    (one_a, many_a), (_, many_b) = rng.sample(_GOODS, 2)
    num_a, num_b = rng.sample(range(2, 9), 2)
    price_a, price_b = rng.randrange(60, 900, 5), rng.randrange(60, 900, 5)
    sum_a, sum_b = num_a * price_a, num_b * price_b
    total = sum_a + sum_b
    opening = (
        f"{{I want to buy|I need|Please add up}} {num_a} {many_a} at {_euros(price_a)} each and "
        f"{num_b} {many_b} at {_euros(price_b)} each. {{What does that cost?|How much is that?}}",
        f"The {many_a} cost {_euros(sum_a)} and the {many_b} {_euros(sum_b)}, so "
        f"{{the total is|you pay}} {_euros(total)}.",
    )
    note = next(n for n in (2000, 5000, 10000, 20000) if n >= total)
    change = (
        f"{{I pay with|I'll give them}} {note // 100} euros. {{How much do I get back?|What is the "
        "change?}",
        f"{_euros(note)} minus {_euros(total)} leaves {_euros(note - total)}.",
    )
    percent = rng.choice((10, 20, 50))
    off = total * percent // 100
    discount = (
        f"{{What if there were|There is}} {percent} % off everything{{.|, what does that do?}}",
        f"{percent} % of {_euros(total)} is {_euros(off)}, so it would cost {_euros(total - off)}.",
    )
    budget = rng.choice((1000, 2500, 4000))
    fits = budget // price_a
    more = (
        f"How many {many_a} {{alone could I get|could I buy}} for {budget // 100} euros?",
        f"At {_euros(price_a)} {{a {one_a}|each}} you could buy {fits}; {{that is|they cost}} "
        f"{_euros(fits * price_a)}.",
    )
    key = ("shopping", many_a, many_b, str(total))
    return _build(key, opening, [change, discount, more], rng)


_RECIPES = {
    "pancakes": (("g of flour", 60), ("ml of milk", 110), ("g of butter", 10)),
    "tomato soup": (("g of tomatoes", 200), ("ml of stock", 150), ("ml of cream", 25)),
    "fried rice": (("g of rice", 75), ("g of peas", 40), ("ml of soy sauce", 15)),
    "potato salad": (("g of potatoes", 220), ("g of gherkins", 30), ("ml of vinegar", 20)),
    "lentil curry": (("g of lentils", 70), ("ml of coconut milk", 100), ("g of spinach", 50)),
    "apple crumble": (("g of apples", 180), ("g of flour", 35), ("g of sugar", 25)),
}
"""Ingredients and their amounts for one person."""


def scale_recipe(rng: random.Random) -> Dialog:
    """Scale a recipe; then a third number of people, or for how many an ingredient is enough."""
    dish = rng.choice(list(_RECIPES))
    ingredients = _RECIPES[dish]
    given, wanted, other = rng.sample(range(2, 13), 3)
    opening = (
        f"My recipe for {dish} is for {given} people: {_list_amounts(ingredients, given)}. "
        f"{{I need it for {wanted}|We will be {wanted}|Please work it out for {wanted}}}.",
        f"For {wanted} people {{you need|take}}:\n"
        + "\n".join(f"- {amount * wanted} {name}" for name, amount in ingredients),
    )
    again = (
        f"{{And for {other}?|What if we are {other}?|Now {other} have said yes.}}",
        f"Then {{it takes|you need}} {_list_amounts(ingredients, other)}.",
    )
    name, amount = ingredients[0]
    have = rng.randrange(amount * 2, amount * 12, 10)
    enough = (
        f"I {{only have|have}} {have} {name}. {{How many people is that enough for?|For how many "
        "people will it do?}",
        f"One person needs {amount} g, so {have} g is enough for {have // amount} people.",
    )
    return _build(("recipe", dish, str(given), str(wanted)), opening, [again, enough], rng)


def _list_amounts(ingredients: Sequence[tuple[str, int]], people: int) -> str:
    *most, last = [f"{amount * people} {name}" for name, amount in ingredients]
    return f"{', '.join(most)} and {last}"


_TARGETS = (
    "train leaves",
    "exam begins",
    "meeting starts",
    "bus goes",
    "shift begins",
    "film starts",
)


def count_back(rng: random.Random) -> Dialog:
    """When to get up for an appointment; then with a reserve, or with a faster way there."""
    what = rng.choice(_TARGETS)
    start = rng.randrange(6 * 60 + 30, 11 * 60, 5)
    way, ready, faster = rng.randrange(20, 56, 5), rng.randrange(25, 66, 5), rng.randrange(5, 20, 1)
    reserve = rng.choice((10, 15, 20))
    opening = (
        f"My {what} at {_clock(start)}. {{It takes me {way} minutes to get there|The way "
        f"there takes {way} minutes}} and I need {ready} minutes to get ready. When "
        "{should|must} I get up?",
        f"Count back from {_clock(start)}: you leave at {_clock(start - way)}, so you get up at "
        f"{_clock(start - way - ready)}.",
    )
    careful = (
        f"{{I'd like|Let me have}} {reserve} minutes {{to spare|in reserve}}.",
        f"Then {{set the alarm for|get up at}} {_clock(start - way - ready - reserve)}.",
    )
    lift = (
        f"{{A friend could drive me, which takes only|By bike it would take}} {faster} minutes. "
        "{How much longer could I sleep?|What would that change?}",
        f"That saves {way - faster} minutes: getting up at "
        f"{_clock(start - faster - ready)} would be early enough.",
    )
    return _build(("back", what, str(start), str(way), str(ready)), opening, [careful, lift], rng)


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def read_calendar(rng: random.Random) -> Dialog:
    """Count days from a date; then back from it, or up to another date."""
    today = date(2025, 1, 1) + timedelta(days=rng.randrange(730))
    ahead, ago, until = rng.randrange(9, 60), rng.randrange(9, 60), rng.randrange(61, 200)
    goal = today + timedelta(days=until)
    opening = (
        f"Today is {_day(today)} {today.year}. {{What day is it|Which date will it be}} in "
        f"{ahead} days?",
        f"In {ahead} days it will be {_day(today + timedelta(days=ahead))}.",
    )
    before = (
        f"{{And {ago} days ago?|What was it {ago} days ago?}}",
        f"{ago} days ago it was {_day(today - timedelta(days=ago))}.",
    )
    left = (
        f"How many days are {{left|there}} until {goal.day} {_MONTHS[goal.month - 1]}?",
        f"{until} days, {{which is|that is}} {until // 7} weeks and {until % 7} "
        f"{'day' if until % 7 == 1 else 'days'}.",
    )
    return _build(("calendar", str(today), str(ahead)), opening, [before, left], rng)


_CHORES = (
    "shopping", "ironing", "calling my aunt", "tidying the kitchen", "repairing the bike",
    "answering letters", "watering the garden", "practising the piano", "baking a cake",
)  # fmt: skip


def plan_chores(rng: random.Random) -> Dialog:
    """Do the chores fit the time? Then a timetable, or what happens if one takes longer."""
    chores = [(name, rng.randrange(15, 50, 5)) for name in rng.sample(_CHORES, 3)]
    total = sum(minutes for _, minutes in chores)
    limit, start = rng.choice((90, 120)), rng.randrange(9, 18) * 60
    listed = ", ".join(f"{name} ({minutes} minutes)" for name, minutes in chores)
    opening = (
        f"I have {limit} minutes and {{this to do|these things to do}}: {listed}. {{Does that fit?|"
        "Can I do it all?}",
        _judge_plan(total, limit),
    )
    times, now = [], start
    for name, minutes in chores:
        times.append(f"- {_clock(now)} {name.replace('my', 'your')}")
        now += minutes
    timetable = (
        f"{{Make me a plan, please|Please write me a timetable}}. I start at {_clock(start)}.",
        "\n".join([*times, f"- {_clock(now)} done"]),
    )
    name, extra = chores[0][0], rng.choice((10, 20, 30))
    longer = (
        f"{{What if|And if}} {name} takes {extra} minutes longer?",
        f"Then it is {total + extra} minutes. {_judge_plan(total + extra, limit)}",
    )
    return _build(("chores", listed, str(limit)), opening, [timetable, longer], rng)


def _judge_plan(total: int, limit: int) -> str:
    if total <= limit:
        return f"{{Yes|That fits}}: {total} of {limit} minutes are taken, {limit - total} are left."
    return f"{{No|That does not fit}}: {total} minutes are {total - limit} more than you have."


def _build(
    key: tuple[str, ...], opening: Exchange, follow_ups: list[Exchange], rng: random.Random
) -> Dialog:
    """Return the opening and one or more of what may follow, in any order."""
    taken = rng.sample(follow_ups, rng.randint(1, len(follow_ups)))
    turns = [turn for exchange in (opening, *taken) for turn in exchange]
    return Dialog(key, tuple(fill(turn, {}, rng) for turn in turns))


def _round(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.1"), ROUND_HALF_UP)


def _euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d} euros"


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02d}"


def _day(day: date) -> str:
    return f"{DAYS[day.weekday()]}, {day.day} {_MONTHS[day.month - 1]}"
