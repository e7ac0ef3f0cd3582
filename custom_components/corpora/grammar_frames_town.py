"""Sentence frames about work, school, travel and the city.

Data only: the notation is explained in ``grammar_frames.py``.
"""

WORK = """
The {manager|director|editor} {reads|checks|signs}/V3 every {report|letter|contract}/NS before it is
  {sent|printed|filed}/VN.
{woman} has worked/VN for/P this {company|newspaper|hospital} since/P {year}.
Our {team|department} has to/MW {finish|present}/VI the {project|budget|report} by/P {weekday}.
The {meeting|interview|workshop} starts/V3 at/P {clock}, so please don't be/VI late.
{man} was/VD late for/P work {yesterday|last Friday} because he {1:missed|forgot|lost}/VD his
  {1:train|keys|ticket}.
She is responsible for/P {few} {projects|clients|branches}/NP in/P {country}.
If the {client|bank|board} {agrees|signs}/V3 {today|this week}, we will {hire|need|invite}/VI {few}
  new {engineers|people|drivers}/NP in/P {month}.
All the {employees|managers|drivers}/NP were/VD invited/VN to/P the {dinner|party|ceremony} last
  {week|night|month}.
I am writing/VG to/MW {ask|complain|apologise}/VI about/P the {invoice|delivery|delay}.
{woman} doesn't have/VI much/Q {experience|time}, but she {1:learns|works|adapts}/V3 very
  {1:quickly|hard|easily}.
The {secretary|assistant} who/MW {answers|takes}/V3 the calls {speaks|understands}/V3 {few}
  languages/NP.
{man} asked/VD his {boss|manager} for/P a {day off|pay rise|new desk} {yesterday|last week}.
Have/SW you sent/VN the {invoice|email|contract} to/P the {client|lawyer|bank} yet?
My colleagues and I/PC meet/VP every {Monday|morning|week}/NS to/MW {plan|discuss}/VI the
  {work|budget|project}.
The new/SW {office|factory|warehouse} is {bigger|brighter|quieter}/CM than the old one.
{woman} would rather/SW {work|stay}/VI at home than {travel|drive}/VI to/P+MW the {office|city}
  every day/NS.
Neither {man} nor {woman} has {finished|read|signed}/VN the {report|form|agreement} yet.
The printer isn't {working|printing}/VG, so we can't {copy|print}/VI these {documents|letters}/NP.
The {engineers|workers|builders} {repaired|replaced|fixed}/VD the {machine|lift|pump} {two days
  ago|last week|yesterday}, but it stopped/VD working/VG again this morning.
"Who is responsible for/P {this mistake|the delay|these numbers}?" the {director|manager|customer}
  asked/VD {yesterday|this morning}.
{man} gave/VD me/PC some useful advice/NU about/P {interviews|contracts|salaries} last {week|month}.
The {report|letter|plan} was/VD written/VN by/P a {young|foreign|famous}/SW
  {lawyer|scientist|journalist} in/P {year}.
{woman} is looking/VG for/P+MW a {job|position} that pays/V3 {better|more}/CM than her last one.
After {few} years/NP of/P hard work/NU, {man} became/VD the manager of/MW a {bank|hotel|restaurant}
  in/P {year}.
There is less/Q {work|traffic|noise} in/P {month} than in/P {month2}.
The {staff meeting|training day} was/VD cancelled/VN {yesterday|last week} because {few}
  {people|managers|speakers}/NP were/VD ill.
"""

SCHOOL = """
The {teacher|professor|tutor} always/SW explains/V3 every {rule|word|problem}/NS
  {twice|slowly|clearly}.
{woman} is interested in/P {subject}, but {man} is better/CM at/P {subject2}.
We didn't/VD have/VI any/DN homework {yesterday|last week}, so we {played|went}/VD
  {outside|together}.
The students were {writing|finishing|discussing}/VG an {essay|exercise|article} in/P the
  {library|classroom} when the {lights|computers} went/VD off.
Every student/NS in/P my {class|school} has to/MW {learn|study}/VI a {foreign|second}/SW language.
{man} passed/VD the exam last {week|month|June} because he studied/VD {hard|every night|with a
  tutor}.
If {1:I|you|we} had studied/VN {harder|longer}/CM, {1:I|you|we} would have/MW passed/VN the
  {exam|test|course} last {week|month}.
How long have/SW you been/MW learning/VG {language}?
My teacher gave/VD us/PC {few} {exercises|poems|questions}/NP to/MW {finish|learn|study}/VI by/P
  {weekday}.
The {girls|boys|pupils} in/P our class are {quieter|taller|noisier}/CM than the ones in/P yours/PC.
{woman} wants/V3 to/MW study/VI {subject} at/P a {university|college} in/P {country}.
This {book|article|dictionary} is more/CM {useful|difficult|interesting} than the one we
  {read|bought|used}/VD last year.
I can't remember what {woman}/SW said/VD about/P the {exam|lesson|timetable} {yesterday|last week}.
Could/SW you speak/VI more/CM {slowly|clearly|loudly}, please? I am still/SW learning/VG {language}.
The {library|museum|lab} is {closed|open} on/P {weekday}s, but we can use/VI it every other day/NS.
{man} has read/VN more/CM {books|poems|plays} than any other {student|boy|girl}/NS in/P the
  {school|class}.
When the bell rang/VD, the {children|students|pupils} {closed|packed}/VD their {books|bags} and
  {ran|walked}/VD home.
The {essay|poem|story} that/MW won/VD the prize was/VD written/VN by/P a {clever|quiet|young}/SW
  {girl|boy|student}.
"Have/SW you ever/SW {read|written|learned}/VN a {poem|song} in/P {language}?" asked/VD the teacher.
Learning/VG {language} takes/V3 a lot of/MW {time|patience|practice}, and it is never too late to/MW
  start/VI.
{woman} finds/V3 {subject} {easier|harder}/CM than {subject2}, although both {subjects|courses}/NP
  have/VP the/AR same teacher.
{man} didn't/VD hand/VI in his {homework|essay|report} last {week|Monday}, so he had/VD to/MW
  {talk|apologise}/VI to/P the teacher.
Some of the {words|answers|sentences}/NP on/P page {nine|twelve|twenty} are {wrong|missing|unclear}.
All {pupils|students|boys|girls}/NP must wear/VI a {uniform|tie|grey jacket}, but the teachers can
  wear/VI {what they like|jeans}.
Neither of the two {teachers|tutors|students}/NP {knew|found|noticed}/VD the mistake {yesterday|last
  week}.
The children who/MW arrive/VP {early|late} {have to|must} wait/VI in/P the {hall|yard|library}.
"""

TRAVEL = """
The train to/P {city} leaves/V3 at/P {clock} from/P platform {two|five|nine}.
We arrived/VD at/P the {airport|station|hotel} {two hours ago|yesterday evening|last night}, but our
  {bags|suitcases} are still missing.
{woman} has {been|flown|driven}/VN to/P+MW {country} {twice|three times|many times}, but she has
  never/SW visited/VN {country2}.
I would like/VI to/MW {book|reserve}/VI a room/NS for/PS {two|three|four} nights/NP in/P {month},
  please.
{man} missed/VD the last {bus|train|ferry} {yesterday|last Sunday}, so he took/VD a taxi.
When we were/VD in/P {city} last {summer|spring|autumn}, we {saw|met|heard}/VD {many|several|some}
  {famous|street|young} {musicians|dancers|actors}/NP.
How far is/SW it from/P {city} to/P {city2}?
Have/SW you packed/VN your {passport|sunglasses|camera|books} yet? We are leaving/VG in/P {an
  hour|ten minutes|half an hour}.
If you travel/VP to/P {country} in/P {month}, {take|bring} a warm/SW {coat|sweater|hat}.
The {hotel|hostel|campsite} that we chose/VD last year was/VD {cheaper|cleaner|nicer}/CM than this
  one.
Passengers must {show|carry|present}/VI a valid/SW {ticket|passport} when they/PC {board|enter}/VP
  the {ship|plane|train}.
The {flight|ferry|coach} was/VD {delayed|cancelled}/VN {yesterday|last night} because of/MW the
  {fog|storm|snow|strike}.
{city} is one of/MW the/AR most/CM {beautiful|interesting|expensive} cities/NP in/P the world.
{woman} sent/VD us/PC a {postcard|parcel|letter} from/P {country} {last month|two weeks ago}.
There are many/Q {interesting|old|small} {museums|castles|villages}/NP near {city}, but there isn't
  much/Q public transport/NU.
My {parents|friends|neighbours} have/VP just/SW come/VN back from/P a {trip|holiday|cruise} to/P
  {country}.
Does this {bus|tram|train} go/VI to/P+MW the {castle|harbour|airport}?
It took/VD us/PC {few} hours/NP to/MW {fly|travel|get}/VI from/P {city} to/P {city2} last
  {weekend|Friday}.
While {man} was/VD {swimming|sleeping}/VG, somebody stole/VD his {wallet|camera|bicycle}.
The guide who/MW {showed|drove}/VD us/PC around {city} {yesterday|last week} spoke/VD {few}
  languages/NP.
You don't need/VI a {visa|passport|permit}/NS if you stay/VP in/P {country} for/P only/SW {few}
  {days|weeks|months}/NP.
The {roads|trains|buses} in/P {country} are more/CM {crowded|dangerous|modern} than {they were five
  years ago|most people expect|the guidebook says}.
I am looking/VG forward to/P {seeing|visiting}/VG {city} with/P my {sister|friend|class} in/P
  {month}.
{woman} suggested/VD {going|walking|cycling}/VG to/P the {beach|lake|coast} because the weather
  was/VD {perfect|lovely|warm}.
By the time {man} {got|ran}/VD to/P+MW the {station|harbour|airport}, the {train|boat|plane} had
  already left/VN.
"""

CITY = """
The {mayor|council} wants/V3 to/MW build/VI a {modern|bigger|cheaper}/SW {bridge|hospital|library}
  in/P the {old town|city centre}.
Parking/VG in/P the centre of/MW {city} is more/CM {expensive|difficult} than it was/VD in/P {year}.
This {street|square|market} is usually {busy|noisy|crowded} at/P {clock}, but it is much/SW
  {quieter|emptier}/CM at night.
A {bus|tram|bicycle} is {cheaper|cleaner}/CM than a {car|taxi}, especially in/P a big/SW city like
  {city}.
Excuse me/PC, is/SW this the {right|shortest|best} way to/P the {town hall|stadium|theatre|old
  port}?
Turn left at/P the {church|bridge|corner}, and you will see/VI the {museum|bank|police station} on/P
  your right.
The {bridge|tower|cathedral} was/VD built/VN by/P {skilled|local|foreign}/SW workers more than {few}
  hundred years ago.
The police are looking/VG for/P+MW a {man|driver|thief} who/MW {stole|damaged}/VD {few}
  {cars|bicycles|scooters}/NP last {night|week}.
Neither the {buses|trams|trains} nor the {taxis|ferries} were {running|working}/VG {yesterday|last
  Sunday} because of/MW the {snow|strike|storm}.
Our {street|village|neighbourhood} doesn't have/VI any/DN {trees|lights|shops}, and nobody likes/V3
  it.
A {young|tall|foreign}/SW man asked/VD me/PC how to/MW get/VI to/P+MW the {station|stadium|zoo}
  {this morning|yesterday}.
The {new|old}/SW {park|theatre|swimming pool} is open from/P {weekday} to/P {weekday2}.
If there is too much/Q {traffic|noise|rain}, {woman} {takes|uses}/V3 the {underground|train} and
  walks/V3 the rest.
People who/MW live/VP in/P {city} {complain|talk|worry}/VP about/P the {rents|traffic|weather} every
  {day|week|winter}/NS.
The {café|restaurant|bookshop} was/VD {opened|sold|closed}/VN in/P {year} by/P a
  {couple|family|chef} from/P {country}.
Don't cross/VI the {street|road} until the light {is|turns} green, even if {there are no cars|you
  are late|nobody is watching/VG}.
The {flowers|lights|statues} in/P the {park|square|garden} are {lovelier|brighter|cleaner}/CM than
  the ones in/P our street.
"Is/SW there anything to/MW {see|do}/VI in/P {city} in/P {month}?" asked/VD the {tourist|visitor}.
{man} lost/VD his way in/P {city} {yesterday|last week} because his {phone|map} was/VD too
  {old|small|dirty}.
"""
