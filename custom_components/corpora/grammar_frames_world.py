"""Sentence frames about science, nature, technology, sport, news and culture.

Data only: the notation is explained in ``grammar_frames.py``.
"""

SCIENCE = """
The {scientists|researchers|students} {discovered|found|described}/VD a {rare|strange|tiny}/SW
  {planet|virus|metal} in/P {year}.
An {atom|electron|egg cell|ant} is much/SW smaller/CM than a {coin|football|human hand}.
If you heat/VP {ice|wax|butter|chocolate|snow}, it melts/V3 and {slowly|soon|quickly}/SW becomes/V3
  a liquid.
The {experiment|test|study} was/VD repeated/VN {few} times/NP, but it didn't/VD give/VI any/DN
  {clear|useful|new} results.
{woman} is working/VG on/P a {book|paper|report} about/P {whales|volcanoes|viruses}.
{Scientists|Doctors|Teachers} have/VP known/VN for/PS many/Q {years|decades}/NP that
  {smoking|stress|sugar} is bad for/P us/PC.
The {telescope|microscope|machine} that the {team|students} {built|bought}/VD last year is more/CM
  {powerful|accurate} than the old/SW one.
{Plants|Trees|Flowers} need/VP {light|water|air} to/MW {grow|live}/VI, and {many|most} animals/NP
  need/VP them/PC.
The {sample|liquid|crystal} should be/MW kept/VN in/P a {cold|dark|dry}/SW place at/P all times/NP.
How many/Q {planets|moons|stars}/NP can/SW {we|you|they} see/VI without a telescope {tonight|from
  here}?
The {professor|writer|doctor} doesn't believe/VI that {robots|computers|machines} can
  {feel|understand}/VI anything/DN.
This {theory|result|idea} was/VD {published|tested|attacked}/VN by/P a {young|French|famous}/SW
  {chemist|physicist|biologist} in/P {year}.
Most of/MW the {energy|heat|light} that/MW {reaches|warms}/V3 {our planet|the sea|the desert}
  comes/V3 from/P the/AR sun.
Each of/MW the {samples|plants|animals}/NP was {measured|weighed|tested}/VN {twice|last week}.
In/P {year}, a group of/MW {doctors|chemists|students} {began|started}/VD to/MW {test|study}/VI the
  {drug|plant|disease}.
Everyone who/MW works/V3 in/P this {lab|building|clinic} has to/MW wear/VI {gloves|goggles|a mask}.
Nobody has ever/DN {seen|touched|photographed}/VN the {bottom|centre} of/MW this
  {cave|volcano|ocean}.
The {earth|moon} is much/SW {smaller|colder|darker}/CM than the/AR sun, but {few people|most people
  don't|we rarely} think about/P it.
The {robot|probe|satellite} has been/MW {sending|collecting}/VG {pictures|data} since/P {year}.
{Yesterday|Last week|On Monday}, {woman} explained/VD to/P+MW us/PC why the {sky|sea} is
  {blue|dark}.
The {results|measurements|numbers} of/MW the {test|study|experiment} are {better|clearer}/CM than we
  expected.
Sound {travels|moves}/V3 more/CM {quickly|easily} through {water|metal|wood} than through air.
If the {temperature|pressure} {rises|falls}/V3 too {fast|far}, the {machine|pump|engine} stops/V3
  by/P itself/PC.
"""

NATURE = """
The {river|lake|stream} {freezes|floods}/V3 every {winter|year}/NS, so the {farmers|fishermen}
  move/VP their {boats|animals}.
A {eagle|fox|owl} hunts/V3 {smaller|weaker}/CM animals, but it doesn't attack/VI {people|adults}.
The {trees|bushes|flowers} in/P this {valley|forest|garden} grow/VP {faster|taller}/CM than those on
  the {hill|coast}.
Last {winter|spring|autumn}, a {storm|flood|fire} {destroyed|damaged}/VD {few}
  {houses|farms|bridges}/NP near the {river|coast|village}.
We saw/VD a {huge|wild|young}/SW {deer|wolf|bear} in/P the {forest|mountains|valley} {yesterday|last
  Sunday}.
The {weather|food|music} in/P {country} is {better|nicer|stranger}/CM than in/P {country2}.
It has been/MW raining/VG since/P {weekday}, and the {river|lake} is {rising|growing}/VG
  {quickly|every hour}.
{Many|Several|Some} {birds|geese|storks}/NP fly/VP south in/P {September|October} and come/VP back
  in/P {March|April}.
The {leaves|acorns|nuts|pears} fall/VP in/P the autumn because the {1:days|nights|mornings} are
  {1:shorter|longer|colder}/CM.
There were/VD hardly any/DN {bees|butterflies|birds}/NP in/P our garden last {summer|spring|year}.
Please don't give/VI the {ducks|monkeys|pigeons|goats} any/DN {bread|chocolate|cake} because it is
  bad for/P them/PC.
The {puppy|kitten|foal} that was/VD born {last week|yesterday} can already {walk|stand}/VI.
My {dog|cat|horse} hates/V3 {thunder|fireworks|water}, and it always/SW hides/V3 {under the
  bed|behind the door|in the barn}.
A {whale|dolphin|seal} has to/MW come/VI up for/P air, but a {shark|salmon|tuna} {doesn't|never
  does}.
The {sun|moon} was/VD {rising|shining}/VG when the {hikers|climbers} {reached|left}/VD the
  {top|hut|lake} {yesterday|last Friday}.
{Few|Not many} {tigers|wolves|gorillas}/NP are left in/P the wild, so {hunters|visitors} must {be/VI
  careful|keep/VI away}.
If we don't {protect|clean}/VI this {lake|beach|forest}, our children will never/SW {see|enjoy}/VI
  it.
The {children|villagers|students} planted/VD {few} hundred {trees|roses|tulips} in/P {year}, and
  they have/VP grown/VN very {tall|well}.
"""

TECHNOLOGY = """
My {computer|phone|laptop} has been/MW very slow since/P I installed/VD a {game|update|program}
  {last week|yesterday}.
This {app|website|program} is used/VN by/P {few} million {people|students|drivers} every
  {day|month}/NS.
If the {screen|battery|keyboard} {breaks|fails}/V3 again, {I|we} will {ask/VI for/P+MW the money
  back|buy/VI another one|call/VI the shop}.
{man} has just/SW {bought|sold|repaired}/VN an {old|expensive|electric}/SW {car|bicycle|piano}.
{You|Children|We} should never/SW {share|save|write}/VI {a|the} password on/P a public/SW
  {computer|website}.
{woman} doesn't know/VI how to/MW {use|start|update}/VI the {printer|scanner|camera}, so she
  needs/V3 some {help|advice}/NU.
These {phones|cameras|tablets}/NP are {lighter|thinner|cheaper}/CM than the ones in/P the other
  shop.
The {engineer|technician} who/MW {repaired|installed}/VD our {heating|printer|router}
  {yesterday|last week} was/VD very {polite|quick}.
Your {files|photos|messages} are saved/VN every {hour|night|day}/NS, so you won't lose/VI
  anything/DN.
Why doesn't {my|the|this} {phone|printer|tablet} work/VI anymore?
Before you {buy|sell}/VP a {phone|computer|tablet}, you should {1:read|check|compare}/VI {few}
  {1:reviews|prices|offers}/NP.
The {internet|radio|telephone} changed the way people {live|talk|learn}/VP, and it is still/SW
  changing/VG it.
An electric/SW {bus|car|train|bicycle} makes/V3 less/Q noise/NU than a {truck|motorbike|plane}.
{man} spends/V3 {few} hours/NP a day in/P front of/MW his {screen|computer}, and his eyes
  {hurt|itch}/VP.
The {password|code|key} that you gave/VD me/PC {yesterday|last week} doesn't {work|help}/VI.
My {grandmother|grandfather|aunt} has learned/VN to/MW {send|write}/VI {emails|messages} on/P a
  {tablet|phone}.
"""

SPORT = """
{team} {beat|played}/VD {team2} {yesterday|last night|last Saturday}, although {few} of/MW their
  players/NP were/VD {ill|injured}.
{man} runs/V3 {faster|further}/CM than {anyone|everybody} else in/P the {team|club|school}.
The {match|race|game} starts/V3 at/P {clock} on/P {weekday}, and it is shown/VN on/P television.
{woman} won/VD a {silver|gold|bronze}/SW medal in/P the {race|final|contest} last
  {year|summer|month}.
The {players|fans|runners} were/VD so {tired|happy|angry} after the {match|final|race} that they
  couldn't {speak|sleep}/VI.
I have/VP been/MW playing/VG {tennis|chess|football|basketball} since/P {year}.
He has never/SW {lost|missed|won}/VN a {game|match|final} in/P his {life|career}.
My {sister|friend|cousin} is good at/P {swimming|skiing|running}/VG, but she isn't interested in/P
  {football|chess|golf}.
If our {goalkeeper|captain|coach} doesn't {improve|return}/VI soon, we will lose/VI the
  {cup|final|league}.
The {coach|trainer} told/VD {us|them|him}/PC to/MW {run|train|stretch}/VI for/PS an hour
  {yesterday|last night}.
{woman} trains/V3 {harder|longer}/CM than her {sister|rivals|friends} because she wants/V3 to/MW
  {win|qualify}/VI.
The {referee|judge|coach} {stopped|ended}/VD the {match|game|fight} {yesterday|last night} because
  of/MW the {rain|snow|fog}.
Swimming/VG is {healthier|safer|cheaper}/CM than {boxing|riding|skiing}/VG.
The {stadium|pool|court} was/VD {built|opened|closed}/VN in/P {year} and can hold/VI {few} thousand
  {people|fans}.
Neither of the {teams|players|runners}/NP {scored|spoke|smiled}/VD in/P the first half
  {yesterday|last night}.
{man} and his {brother|friend|coach} go/VP {swimming|running|climbing}/VG {twice|three times} a
  week, even in/P the winter.
Is your {team|club} going/VG to/MW play/VI against/P {team} on/P {weekday}?
The {captain|winner|champion} thanked/VD the {fans|doctors|sponsors} who/MW had/VD
  {helped|supported}/VN him/PC last {year|season}.
It was/VD the/AR {best|fastest|longest}/CM {race|match|final} that I have/VP ever/SW seen/VN.
Every {player|runner|rider}/NS {gets|needs}/V3 a {number|towel|helmet} before the {race|match|game}
  starts/V3.
"""

NEWS = """
The {president|minister|king} {visited|left}/VD {country} {yesterday|last week} to/MW
  {talk|speak}/VI about/P {trade|peace|energy}.
{few} {people|workers|tourists}/NP were/VD {hurt|rescued|arrested}/VN after a {fire|fight|crash}
  in/P {city} last night.
The {government|council} doesn't have/VI enough money to/MW {repair|build}/VI
  {schools|roads|hospitals} in/P the north.
Prices rose/VD by/P {few} percent last {month|year|winter} because {oil|bread|milk} was/VD more/CM
  {expensive|scarce}.
The {election|vote|meeting} will be/MW held/VN on/P {weekday} in/P {city}.
"We can't {pay|accept|support}/VI this {bill|plan|law}," a {minister|spokesman|farmer} said/VD
  {yesterday|on Monday}.
The {strike|storm|fire} which/MW {began|started}/VD {last week|yesterday} has already/SW
  {closed|damaged}/VN {few} {schools|factories|airports}/NP.
{Thousands|Hundreds} of/MW {students|farmers|nurses}/NP marched/VD through {city} {yesterday|last
  Friday}.
The {new|strict}/SW law makes/V3 it harder/CM to/MW {sell|buy|advertise}/VI
  {fireworks|tobacco|alcohol} in/P {country}.
A {rich|famous|retired}/SW {actor|singer|banker} gave/VD his {house|money|paintings} to/P a
  {museum|school|hospital} in/P {year}.
The {minister|mayor|director} who/MW {lost|won}/VD the vote last {week|month} doesn't want/VI to/MW
  {resign|leave|comment}/VI.
If the {price|demand} {rises|falls}/V3 again next {month|year}, many/Q {farmers|shops|companies}/NP
  will {close|suffer}/VI.
The number of/MW {accidents|visitors|flights}/NP is {higher|lower}/CM than it was/VD {few} years
  ago.
Nobody was/VD {hurt|injured} when a {bus|lorry|tram} hit/VD a {tree|wall|bridge} in/P {city}
  {yesterday|last night}.
The {factory|mine|school} was/VD closed/VN in/P {year}, and most of/MW the
  {workers|families|teachers}/NP have/VP left/VN the town.
The {newspaper|magazine|website} apologised/VD last {week|month} because it had/VD printed/VN {a
  false|the wrong} {story|picture|name}.
Both the {president|king} and the {queen|minister} {arrived|landed}/VD in/P {city} {yesterday|last
  night}.
People in/P {country} are waiting/VG for/P+MW the {results|news|report}, which/MW will be/MW
  announced/VN on/P {weekday}.
Although the {storm|flood} is over, {few} hundred {houses|families|villages} still/SW don't have/VI
  any/DN {power|water|heating}.
"""

CULTURE = """
This {film|novel|play} is about/P a {girl|boy|soldier} who/MW {lives|works}/V3 on/P a
  {farm|ship|small island}.
{woman} has written/VN {few} {novels|songs|poems}/NP, and all of/MW them/PC are
  {sad|funny|beautiful}.
The {museum|gallery|palace} has a {large|famous|strange}/SW {painting|statue|clock} that was made/VN
  in/P {country}.
My friends and I/PC went/VD to/P+MW a {concert|play|festival} in/P {city} {last weekend|last
  month|yesterday}.
The {actor|singer|dancer} whose {voice|face|hair} you like/VP comes/V3 from/P {country}.
{woman} thinks/V3 the {book|play} is {better|funnier|sadder}/CM than the film.
{woman} can play/VI the {piano|violin|guitar} very well, but she can't {read|write}/VI music/NU.
The {film|concert|show} had/VD already {started|finished}/VN when we {arrived|got}/VD there {last
  night|yesterday}.
Which of/MW these {books|films|songs|games}/NP do/SW {you|they|we} {like|remember}/VI best/CM?
This {castle|church|temple} is the/AR {oldest|largest|highest}/CM building/NS in/P {country}.
{man} was/VD {drawing|painting}/VG a {portrait|picture} of/P his {wife|mother|dog} when I
  {met|visited}/VD him/PC last {week|year}.
The {song|poem|story} was/VD {written|translated}/VN into {language} by/P a
  {teacher|student|prisoner} in/P {year}.
The {audience|crowd} {laughed|cheered}/VD when the {clown|singer|king} {fell|danced}/VD on the stage
  {last night|yesterday}.
{woman} enjoys/V3 {reading|writing|collecting}/VG {poems|comics|letters}, but {man}
  {prefers|likes}/V3 {films|music|games}.
Children under {ten|twelve} don't have/VP to/MW {pay|wait}/VI at/P the {museum|zoo|castle}.
"I have/VP never/SW heard/VN such a {sad|strange|beautiful}/SW {song|story|voice}," {woman} told/VD
  us/PC {yesterday|last night}.
It is {said|believed}/VN that the {castle|tower|house} belongs/V3 to/P+MW a
  {rich|strange|foreign}/SW {prince|artist|family}.
There is an {old|unusual|interesting}/SW {story|song|legend} about/P the {king|giant|bridge} of/MW
  {city}.
If the tickets aren't too {expensive|dear}, we will {see|visit}/VI {few} {shows|museums|concerts}/NP
  in/P {city}.
"""

IDEAS = """
{woman} believes/V3 that every {child|person|student}/NS should {learn/VI music|have/VI a
  hobby|keep/VI a pet}.
I don't agree/VI with/P {woman} when she {says|claims}/V3 that {money|luck|beauty} is more/CM
  important than {health|friendship|freedom}.
It is {easier|harder}/CM to/MW {forgive|love|teach}/VI a {friend|child|neighbour} than to/MW
  {punish|blame|fight}/VI one.
The more you {read|practise|travel}/VP, the more you {learn|know|remember}/VP.
Their {plan|idea|answer} is {better|simpler}/CM than {ours|mine|hers}/PC because it doesn't need/VI
  much/Q {time|money}.
What would/SW you do/VI if you {won|found|lost} a million {dollars|pounds|euros}?
If {man} had/VD more/CM {time|money|patience}, he would {learn|study|teach}/VI {language}.
I wish I could/SW {speak|read|write}/VI {language} as well as you.
{man} is one of/MW the/AR {kindest|strangest|funniest}/CM people/NP that I have/VP ever/SW met/VN.
Both of/MW my {friends|neighbours|colleagues}/NP think/VP that {man} is {right|wrong|funny}.
We must learn/VI to/MW {live|work|talk}/VI with/P people who/MW don't {think|believe|look}/VI like
  us/PC.
No {rule|plan|answer} is so {good|simple|clear} that it can't be/MW {changed|improved|broken}/VN.
"You're too {young|old} to/MW {travel|live}/VI alone," my {mother|uncle|teacher} told/VD me/PC {last
  year|yesterday}.
{woman} isn't sure whether the {letter|gift|news} is for {her|him|us}/PC or for {them|me}/PC.
They're {proud|afraid|tired} of/P their {town|team|teacher}, but they never/SW {say|admit}/VP it.
People {often|rarely|always}/SW {forget|notice}/VP how {short|beautiful|strange} life is.
The {answer|reason|truth} is {simpler|stranger|sadder}/CM than {most people think|you think|it
  looks}.
My {best|oldest} friend gives/V3 me/PC good advice/NU about/P {school|money|clothes|work} whenever I
  {ask|call}/VP.
"""
