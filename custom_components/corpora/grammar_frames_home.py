"""Sentence frames about daily life, family, cooking, shopping and health.

Data only: the notation is explained in ``grammar_frames.py``.
"""

DAILY_LIFE = """
{My sister|My brother|Our neighbour|My aunt|My boss} always/SW {drinks|makes|buys}/V3 a cup of/MW
  {coffee|tea|cocoa} {before work|after lunch|before breakfast|in the evening}.
{woman} and {man} live/VP in/P a {small|quiet|large|cheap} flat near the
  {station|park|river|market}.
I usually/SW get/VP up at/P {clock} and have/VP breakfast with/P my {mother|sister|family|flatmate}.
There are {few} {cups|plates|spoons|glasses}/NP on the {table|shelf|tray}, but there isn't any/DN
  {milk|sugar|bread|butter} in/P the kitchen.
Where does/SW {woman} keep/VI the {keys|candles|batteries|scissors}?
{Last night|Yesterday evening|Two hours ago}, my {mother|uncle|cousin} {lost|found|broke}/VD a
  {ring|phone|watch|camera} in/P the {garden|garage|kitchen}.
{man} has lived/VN on/P this {island|farm} since/P {2005|2012|last summer|2019}.
If it {rains|snows}/V3 {tomorrow|this weekend|on Saturday}, we will stay/VI at/P home and {watch a
  film|play cards|bake a cake}.
My {1:grandmother|grandfather|uncle|aunt} doesn't trust/VI {computers|smartphones|robots}, so
  {1:she|he|he|she} never/SW {uses|buys|touches}/V3 them/PC.
The {woman|man|couple} who/MW {1:owns|runs}/V3 the {bakery|bookshop|hotel} has a
  {big|friendly|noisy|lazy}/SW {dog|cat|parrot}.
Can/SW you tell/VI me/PC where the {nearest|closest} {bathroom|post office|bus stop|bank|chemist}
  is, please?
Nobody knows/V3 where {woman}/SW is {today|this morning|at the moment}.
Yesterday morning, {woman} asked/VD me/PC whether I wanted/VD to/MW {join|help|visit}/VI her
  {family|friends|cousins} {at the lake|in the village|on the farm}.
The {bag|box|basket} of {apples|books|clothes|tools} is too heavy for {him|her|me}/PC to/MW
  {carry|lift|move}/VI.
Each of the {rooms|flats|offices|cabins}/NP has a {window|balcony|small desk|private bathroom}.
We have/VP been/MW waiting/VG for/P+MW the {bus|plumber|doctor|taxi} for/PS {half an hour|two
  hours|twenty minutes}.
My {keys|glasses|gloves|shoes} aren't {on the table|in the drawer|under the bed}, so I can't find/VI
  them/PC.
This {jacket|coat|shirt|hat} is {cheaper|warmer|nicer|lighter}/CM than the one in the
  {window|catalogue|other shop}.
{man}'s {car|van|motorbike} is {faster|older|newer}/CM than {mine|ours|hers}/PC, but it uses/V3
  less/Q fuel.
Please don't forget to/MW {lock/VI the door|turn/VI off the lights|feed/VI the cat} before you
  {leave|go out|go to bed}.
There is a {large|strange|dark}/SW {stain|mark|scratch} on/P the {wall|door|window} of/MW my
  {bedroom|office|studio}.
Is/SW there a {bakery|bank|library|pharmacy} near your {house|office|hotel}?
The children were {playing|sleeping|shouting|painting}/VG in/P the {garden|kitchen|hall} when the
  {phone|doorbell|alarm} rang/VD.
It was/VD so {cold|windy|wet} last {night|Sunday|week} that nobody {wanted|dared}/VD to go/VI
  {outside|for a walk|to the market}.
My {parents|friends|cousins} spend/VP too much/Q {time|money} on/P {video games|new clothes|their
  garden|old cars}.
How much/Q {milk|sugar|bread|rice} do/SW we need/VI for the {party|weekend|picnic}?
How many/Q {chairs|candles|bottles|plates}/NP did/SW you buy/VI for the {party|wedding|picnic}?
{man} used to/MW {smoke|sing|cycle|paint}/VI every day/NS, but now he {rarely|never}/SW does.
You should {clean|wash|check}/VI the {fridge|oven|filter} at/P least once a {week|month|year}/NS.
I have/VP {known|admired}/VN {woman} since/P we were/VD {children|neighbours|students}.
"I can't {find|open|fix}/VI the {door|window|umbrella}," said {woman}, "so please help/VI me/PC."
The {lamp|mirror|painting|clock} that {man} bought/VD {last week|last March|yesterday} is already
  {broken|dirty|missing}.
"""

FAMILY = """
My {older|younger}/SW {sister|brother|cousin} is {taller|stronger|calmer}/CM than my
  {father|mother|uncle}.
{woman} looks/V3 like her {mother|aunt|grandmother}, but she speaks/V3 much/SW {faster|louder}/CM.
{man} got/VD married to/P a {nurse|lawyer|dancer|teacher} from/P {city} last {year|spring|June}.
Between you and me/PC, {man} isn't very good at/P {cooking|dancing|driving|singing}/VG.
My {brother|cousin|husband} and I/PC are planning/VG to/MW {visit|surprise}/VI our {parents|uncle}
  next {month|week|Sunday}.
The baby {cried|slept|laughed}/VD all {night|morning|afternoon} yesterday, so {woman} was/VD very
  {tired|happy}.
{woman} and her {daughter|son|sister} have/VP the/AR same {eyes|smile|laugh|voice}.
When {1:she|he} was/VD {few} years/NP old, {1:Maria|David} moved/VD to/P+MW {country} with/P
  {1:her|his} {parents|family|grandmother}.
{man} is the/AR {youngest|oldest|tallest}/CM of/P {few} {brothers|children|cousins}/NP.
My {1:grandmother|grandfather} often/SW tells/V3 us/PC {funny|strange|long} stories about/P
  {1:her|his} {village|childhood|travels}.
Her {son|nephew|brother} wants/V3 to/MW become/VI a {pilot|engineer|actor|dentist} when he grows/V3
  up.
We {visited|called|met}/VD our {grandparents|relatives|cousins} {two days ago|last
  weekend|yesterday} because it was/VD my {mother|aunt|uncle}'s birthday.
Do your {parents|brothers|children} know/VI that {man} is {ill|angry|lost}?
{woman}'s {father|uncle|husband} has worked/VN for/P the/AR same {bank|hospital|airline} for/PS
  {few} years/NP.
Although they/PC are twins, {man} and his {brother|sister} don't {look|think|speak}/VI alike.
The {girl|lady|woman} sitting/VG next to/MW {him|us|them}/PC is {man}'s {sister|cousin|teacher}.
My {son|daughter|nephew} isn't old enough to/MW {drive|vote|travel}/VI {yet|this year}.
{woman} reminded/VD her {children|sons|daughters} to/MW wash/VI their {teeth|hands|faces}/NP before
  bed {last night|yesterday evening}.
If {1:my uncle|my aunt|our neighbour} {1:calls|phones|rings}/V3 {today|this evening}, tell/VI
  {1:him|her|him}/PC that we are {busy|out|asleep}.
{man} and {woman} have/VP been/MW {married|engaged} for/PS {few} years/NP, and they still
  {laugh|argue|cook}/VP together every {day|evening}/NS.
Nobody in/P my family has ever/DN {learned|studied|spoken}/VN {language}.
"Whose {coat|bag|scarf} is this?" {woman} asked/VD {us|them|me}/PC {yesterday|last night}.
The {twins|boys|girls} are {sharing|painting|cleaning}/VG their {room|bedroom} by/P themselves/PC
  this {week|weekend}.
My father, who/MW {works|teaches|lives}/V3 in/P {city}, comes/V3 home every {Friday|weekend}/NS.
"""

COOKING = """
The {chef|cook} chops/V3 the {onions|carrots|peppers|mushrooms} before adding/VG them/PC to/P the
  {soup|sauce|stew}.
First, {melt|heat} the butter in/P a {small|large|deep}/SW pan, and then add the
  {flour|garlic|rice}.
This {recipe|cake|pudding} needs/V3 {few} {eggs|lemons|apples}/NP, a cup of/MW {sugar|milk|cream}
  and a pinch of/MW salt.
The {soup|curry|sauce} was/VD too {salty|spicy|thin} {last night|yesterday}, so nobody
  {wanted|finished}/VD it.
{man} cooks/V3 {better|faster}/CM than anyone else in/P {his family|our office|the building}.
If you leave/VP the {bread|cake|pizza|fish} in/P the oven for/PS {half an hour|two hours|three
  hours}, it will burn/VI.
We ran/VD out of/MW {flour|milk|eggs} {yesterday|last night}, so I {went|walked|drove}/VD to/P+MW
  the {shop|market|supermarket}.
The {pancakes|biscuits|dumplings} that my {aunt|grandmother|flatmate} makes/V3 are the/AR
  {best|softest|sweetest}/CM in/P the {town|world|family}.
Would/SW you like a {slice|piece} of/MW {cake|pie|cheese} with/P your {tea|coffee}?
{woman} has never/SW {eaten|tried|cooked}/VN {octopus|curry|sushi|venison} before.
The {rice|pasta|meat} is {boiled|fried|served}/VN with/P a {spicy|creamy|light}/SW sauce.
Don't put/VI too much/Q {salt|pepper|sugar|oil} in/P the {soup|salad|dough}.
There aren't many/Q {tomatoes|potatoes|oranges|grapes}/NP left in/P the {fridge|basket|kitchen}.
{woman} is allergic to/P {nuts|seafood|eggs}, so she {reads|checks}/V3 every label/NS
  {carefully|twice}.
The waiter {brought|gave|served}/VD us/PC the wrong {dish|drinks|dessert} {last night|yesterday|last
  Sunday}.
You can replace/VI the butter with/P {oil|yogurt|honey} if you prefer/VP a
  {lighter|softer|sweeter}/CM {cake|dough}.
The {kitchen|oven|grill} must be/MW {cleaned|checked}/VN every {evening|night}/NS after the
  {guests|customers} leave/VP.
{man} forgot/VD to/MW {add|buy|bring}/VI the {salt|eggs|cheese} {yesterday|last Friday}, and the
  omelette {tasted|looked}/VD {terrible|strange|bland}.
A {ripe|fresh}/SW {mango|orange|pear} {smells|tastes}/V3 {sweet|lovely}, but an unripe/SW one is
  usually {hard|sour}.
My {1:mother|grandfather|neighbour} {grows|dries|sells}/V3 {basil|mint|parsley} and many/Q other
  {herbs|plants}/NP in/P {1:her|his|her} garden.
How long does/SW it take/VI to/MW {boil|peel|cook}/VI {ten|twenty} {potatoes|carrots|eggs}/NP?
While the {soup|rice|stew} was/VD cooking/VG, {woman} {set|cleaned|laid}/VD the table and opened/VD
  a bottle of/MW {wine|juice|water}.
"""

SHOPPING = """
I would like to/MW {exchange|return}/VI this {sweater|dress|shirt} because it is too
  {small|tight|long}.
The {shoes|boots|trousers} in the window are more/CM {expensive|elegant|comfortable} than these.
How much does this {small|red|wooden}/SW {lamp|bag|table|boat} cost/VI?
{woman} bought/VD {few} {pens|notebooks|stamps}/NP and a {red|blue|thick}/SW folder {yesterday|last
  Monday}.
The {shop|stall} on/P the corner sells/V3 {fresh|cheap}/SW {fruit|bread|flowers}, but it doesn't
  open/VI on/P {weekday}s.
If the {shoes|gloves|boots|trousers} don't fit/VI, {you|your wife} can bring/VI them/PC back within
  a {week|month}/NS.
I didn't/VD buy/VI anything/DN at the {market|sales|mall} {yesterday|last Saturday} because
  everything was/VD too {expensive|ugly|small}.
These {jeans|sandals|shorts} are the/AR {cheapest|nicest|prettiest}/CM in/P the
  {shop|catalogue|market}.
The {cashier|manager|assistant} {apologised|smiled}/VD and gave/VD me/PC a {new|free|better}/SW
  {ticket|bag|receipt} {yesterday|last week}.
Could/SW you show/VI us/PC another {1:ring|watch|necklace}, please? This {1:ring|watch|necklace} is
  too {expensive|big|plain}.
He paid/VD {few} hundred {dollars|pounds|euros} for/P an {old|antique|unusual}/SW
  {chair|clock|guitar} last {week|summer}.
My {sister|neighbour|flatmate} prefers/V3 shopping/VG online to/P going/VG to/P+MW {busy|crowded}
  {shops|markets}.
There was/VD a long/SW queue outside the {bakery|bank|shop} {yesterday morning|last Saturday}, so we
  {left|waited}/VD.
Every {customer|visitor|member}/NS gets/V3 a {free|small|special}/SW gift on/P {weekday}.
{woman} asked/VD the {assistant|manager} how much the {blue|green|leather}/SW {bag|jacket|sofa}
  {cost|weighed}/VD.
The prices in/P this {supermarket|bookshop|bakery} are much/SW {higher|lower}/CM than they were/VD
  in/P {year}.
{man} has already/SW spent/VN {all|half} of his {money|salary} on/P {records|shoes|gifts} this
  month.
Both {jackets|coats|dresses}/NP are made/VN of/P {wool|cotton|leather}, but the {red|black} one is
  {warmer|softer}/CM.
"""

HEALTH = """
The doctor told/VD {woman} to/MW drink/VI more/CM {water|juice} and to eat/VI less/Q {sugar|salt}
  {yesterday|last week}.
{man} has had/VN a {bad|terrible}/SW {headache|cough|cold} since/P {weekday}.
If you feel/VP {dizzy|tired|sick|weak}, you should sit/VI down and {drink|ask/VI for} some
  {water|juice|tea}.
The nurse {measured|checked|recorded}/VD my {temperature|weight|height} {yesterday|last Friday}.
I went/VD to/P+MW the {dentist|doctor|hospital} on {weekday} because I broke/VD a {tooth|finger|toe}
  last {night|week}.
{Children|Teenagers|Young babies} need/VP more/CM {sleep|milk|rest} than {adults|their parents|we
  do}.
{woman} is afraid of/P {needles|hospitals|dentists}, so her {sister|mother} goes/V3 with/P her/PC.
Walking/VG for/PS {half an hour|twenty minutes} every day/NS is good for/P your
  {heart|health|back|lungs|mood}.
{man} {hurt|broke}/VD his {arm|hand|knee} while he was/VD {skiing|dancing|climbing}/VG last
  {winter|week|Sunday}.
Too many/Q {sweets|biscuits|cakes|chips}/NP are bad for/P your {teeth|skin|health|heart}.
You must take/VI this {medicine|tablet|syrup} {three times|twice} a day with/P a glass of/MW
  {water|milk}.
She hasn't felt/VN {well|hungry|strong} since/P she {came|flew|drove}/VD back from/P {country}.
"I don't think {1:he|she} is {ill|hurt}," the {doctor|nurse} said. "{1:He|She} just needs/V3 a
  {rest|holiday|break}."
The patients were/VD given/VN a {hot|warm|light}/SW {meal|drink|lunch} after the
  {operation|examination|test} {yesterday|last night}.
Neither the {doctor|nurse} nor the {patient|driver} was {hurt|injured|blamed} in/P the accident last
  {night|week}.
{woman} gave/VD up {smoking|sugar|coffee} {two years ago|last year}, and now she feels/V3 much/SW
  {better|healthier|stronger}/CM.
People who/MW {sleep|rest}/VP well are usually {calmer|happier|healthier}/CM than {people who
  don't|those who work at night|most others}.
How often do/SW you {go|walk|cycle}/VI to/P+MW the {gym|pool|dentist|clinic} in the {summer|winter}?
Before going/VG to/P bed, {woman} always/SW {drinks|has}/V3 a glass of/MW {milk|water}.
My {uncle|aunt|neighbour} was/VD advised/VN to/MW {rest|exercise|walk}/VI more/CM after the
  operation last {year|spring|month}.
"""
