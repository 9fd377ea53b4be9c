"""English words that rules need: closed classes, verbs and their forms, words of like meaning."""

import re
from functools import cache, lru_cache


def listed(words: str) -> frozenset[str]:
    """The set of words that spaces part."""
    return frozenset(words.split())


DETERMINERS = listed(
    "the a an this that these those its his her their our my your each every some any no both "
    "all another several many few most such either neither half"
)
PREPOSITIONS = listed(
    "in on at by of from to with for under over above below beneath behind beside besides "
    "between among through throughout during across against along around near into onto upon "
    "within without about off out up down toward towards past inside outside beyond via per "
    "until till after before since despite except like than amid aboard opposite"
)
PLACES = listed(
    "in on at under over above below beneath behind beside between among across along around "
    "near inside outside beyond opposite aboard through into onto off upon against"
)
PRONOUNS = listed(
    "it he she they we you i him them us me itself himself herself themselves everyone "
    "everybody nobody someone somebody anyone anybody nothing everything something this that "
    "these those others one none there"
)
CONJUNCTIONS = frozenset(("and", "or", "but", "nor", "yet"))
SUBORDINATORS = listed(
    "because since when whenever while if unless although though whereas as after before "
    "until once where so"
)
RELATIVES = frozenset(("which", "who", "whose", "whom", "that", "where"))
BE = frozenset(("is", "are", "was", "were", "am"))
AUXILIARIES = BE | {"has", "have", "had", "do", "does", "did"}
MODALS = listed("may must can could should would might will shall cannot")
ADVERBS = listed(
    "not never also then still often always ever only just therefore now soon later again "
    "already almost nearly sometimes usually even too very quite rather together twice once "
    "first here there today thus however instead away back yet about afterwards thereupon "
    "hardly barely seldom longer more less roughly chiefly mostly alone indoors outdoors "
    "abroad apart upstream downstream ashore nearby elsewhere somewhat"
)
NUMBERS = listed(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty "
    "ninety hundred thousand million billion dozen"
)
SMALL = DETERMINERS | PREPOSITIONS | PRONOUNS | CONJUNCTIONS | AUXILIARIES | MODALS | RELATIVES
MONTHS = listed(
    "january february march april may june july august september october november december"
)
DAYS = listed("monday tuesday wednesday thursday friday saturday sunday")
SEASONS = listed("spring summer autumn fall winter")
TIMES = (
    MONTHS
    | DAYS
    | SEASONS
    | listed(
        "second minute hour day night week month year decade century morning evening afternoon "
        "noon midnight dawn dusk sunset sunrise moment time weekend"
    )
)
DURATIONS = listed("second minute hour day night week fortnight month year decade century")
MONEY = listed(
    "dollar euro pound penny pence cent shilling farthing crown florin franc mark krone krona "
    "guilder guinea ducat rupee yen yuan ruble peso real lira dinar thaler halfpenny"
)
MEASURES = {
    "tall": "height", "high": "height", "wide": "width", "long": "length", "deep": "depth",
    "thick": "thickness", "old": "age", "heavy": "weight", "broad": "breadth", "large": "size",
}  # fmt: skip
PLACE_NAMES = listed(
    "bay point reef rock island isle hill mount mountain valley river lake street road lane "
    "square bridge park garden house hall tower church chapel castle school university "
    "library hospital museum station harbour harbor port village town city county province "
    "country forest wood meadow field farm ridge cottage market quarter gate cape sea ocean "
    "creek spring mill dam cellar dairy terrace row end green"
)
GROUPS = listed(
    "trust company group society council guild board club union association cooperative "
    "committee bank army party act treaty war riot flood fire festival museum press"
)
PEOPLE = listed(
    "doctor dr captain professor mr mrs ms miss sir lady lord king queen duke duchess count "
    "prince princess baron bishop father mother sister brother saint judge mayor president "
    "chairman chairwoman director keeper teacher schoolteacher baker cook smith mason "
    "architect engineer builder painter writer poet author artist craftsman shipwright "
    "carpenter physician nurse surgeon biologist chemist physicist astronomer scientist "
    "philosopher historian farmer fisher fisherman miller brewer tanner weaver merchant "
    "trader carrier sailor pilot soldier officer guard ranger cashier clerk lawyer minister "
    "priest nun monk widow wife husband son daughter man woman boy girl child brothers "
    "sisters founder owner master apprentice student member manager chief inventor designer "
    "secretary treasurer singer musician actor driver"
)

_SAME = listed(
    "lens gas news series species christmas perhaps always means headquarters gallows ours"
)
NOUNS = listed(
    "spring morning evening ceiling herring thing king ring wing string building railing "
    "wedding shilling sterling darling offspring nothing something anything everything "
    "sibling during building lightning pudding stocking earring farthing being"
)

_BASES = """
accept ache achieve act add admit adopt advise agree aim allow amount announce answer appear apply
appoint approach approve arrange arrive ask assist attack attempt attend attract avoid award bake
ban bar believe belong boil border borrow breathe brew burn bury call cancel cap care carry carve
cast catalogue cause cease celebrate change charge check choke claim clean clear climb close
collapse collect colour combine come command compare compete complain complete concern conclude
condemn confirm connect consider consist construct contain continue contribute convert cook copy
cost count cover crack create cross crush cry cure dance date decide declare decline decorate
defend delay deliver demand deny depend deposit derive descend describe design destroy detect
determine develop devote die differ direct disappear discover discuss dismiss display dissolve
distinguish disturb divert divide dominate double drain dress drift drill drop drown dry dye earn
elect embrace emerge employ empty enable encourage end endure enjoy enter establish examine exceed
exchange exclude exist expand expect expel explain explode explore export express extend face fade
fail fall farm favour feature fence ferry file fill filter finance finish fire fish fit fix flash
float flood flow fold follow forbid force form found freeze frighten fulfil function gain gather
govern graduate grant guarantee guard guide hang happen harvest haul heal heat help hire honour
hope host house hunt identify ignore imagine import improve include increase indicate inform
inhabit injure inscribe insist inspect install interest introduce invade invent investigate invite
involve issue join joke judge jump kill knock lack land last laugh launch lay lean learn lease
lend lift light like limit line link list live load loan lock look lower maintain manage march
mark marry matter measure melt mention mine miss mix move multiply murder name need nest note
notice number obey oblige observe obtain occupy occur offer open operate oppose order organise
organize own pack paint park pass pave pay perform permit persuade pick place plan plant play
please plough poison pour practise praise pray predict prefer prepare present preserve press
prevent print proceed produce prohibit promise promote propose protect prove provide publish pull
pump punish purchase push qualify quarrel question race rain raise range rank reach realise
realize rebuild recall receive recognise recognize recommend record recover reduce refer reflect
refuse regard regulate reject release rely remain remember remind remove renew rent repair repeat
replace reply report represent request require rescue resemble resign resist resolve rest restore
result retire return reveal reward risk roll rot ruin rule sail sample save scare seal search seat
seem select separate serve settle share shelter ship shorten shout show shut sign signal sleep
slide slope smell smoke smuggle soak solve sort sound specify spoil sponsor spray spread stage
stain stamp stand start starve state stay stop store stretch strike study succeed suffer suggest
suit supply support suppose suppress surround survive suspect sweat taste tax test thank threaten
tie touch tour trade train transfer transform translate transport trap travel treat tremble trust
try turn type understand unite urge use value vanish vary visit vote wait walk want warm warn wash
waste watch water weaken weigh welcome widen win wish withdraw witness work worry wound wrap yield
"""
# base past participle
_IRREGULAR = """
be was been|bear bore borne|beat beat beaten|become became become|begin began begun|bend bent bent
bind bound bound|bite bit bitten|blow blew blown|break broke broken|breed bred bred
bring brought brought|build built built|burst burst burst|buy bought bought|catch caught caught
choose chose chosen|come came come|cost cost cost|cut cut cut|dig dug dug|do did done
draw drew drawn|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed fed
feel felt felt|fight fought fought|find found found|flee fled fled|fly flew flown
forget forgot forgotten|freeze froze frozen|get got got|give gave given|go went gone
grow grew grown|hang hung hung|have had had|hear heard heard|hide hid hidden|hit hit hit
hold held held|keep kept kept|know knew known|lay laid laid|lead led led|leave left left
lend lent lent|let let let|lie lay lain|lose lost lost|make made made|mean meant meant
meet met met|owe owed owed|pay paid paid|put put put|read read read|rebuild rebuilt rebuilt
ride rode ridden|ring rang rung|rise rose risen|run ran run|say said said|see saw seen
seek sought sought|sell sold sold|send sent sent|set set set|shake shook shaken|shine shone shone
shoot shot shot|show showed shown|shut shut shut|sing sang sung|sink sank sunk|sit sat sat
sleep slept slept|slide slid slid|speak spoke spoken|spend spent spent|split split split
spread spread spread|spring sprang sprung|stand stood stood|steal stole stolen|stick stuck stuck
strike struck struck|swear swore sworn|sweep swept swept|swim swam swum|swing swung swung
take took taken|teach taught taught|tear tore torn|tell told told|think thought thought
throw threw thrown|understand understood understood|wake woke woken|wear wore worn
weave wove woven|win won won|wind wound wound|withdraw withdrew withdrawn|write wrote written
forbid forbade forbidden|overturn overturned overturned|overlook overlooked overlooked
"""
# Words that may stand for each other in a question, in the same form.
_SYNONYMS = """
bought acquired purchased|built constructed erected|made manufactured produced|started began
finished completed|founded established set-up|help assist aid|use employ|used employed|tall high
big large|small little|old ancient|kept stored held|keeps stores holds|keep store
carries transports|carry transport|bring fetch|brought fetched|wreck ruin|destroyed ruined wrecked
damaged harmed|visible seen|stop cease|stops ceases|stopped ceased|begins starts|begin start
begun started|ended stopped|shows displays|show display|showed displayed|gives provides supplies
give provide supply|gave provided supplied|given provided supplied|needs requires|need require
needed required|gets receives|get receive|got received|received got|receives gets
allowed permitted|allow permit|forbidden prohibited banned|banned forbidden prohibited
chosen selected|chose selected|choose select|led headed|leads heads|run managed|managed run
directed led managed|directs leads manages|manages runs|lives dwells|live dwell|lived dwelt
killed slain|died perished|die perish|dies perishes|hurt injured|injured wounded|ill sick
moved shifted|moves shifts|put placed|puts places|placed put|sent dispatched|sends dispatches
sold traded|costs takes|buy acquire purchase|buys acquires purchases|wrote composed
written composed|said stated|says states|told informed|asked requested|found discovered
finds discovers|discovered found|saw noticed|seen noticed|noticed observed|watched observed
watches observes|guarded protected|protects shields|protected shielded|covered coated
cleaned washed|clean wash|cleans washes|mended repaired|repaired mended fixed|changed altered
changes alters|grew rose|grown risen|fell dropped|falls drops|fallen dropped|raised lifted
lowered reduced|reduced cut|increased raised|joined united|joins links|link connect
linked connected|connected linked|opened inaugurated|closed shut|close shut|closes shuts
replaced substituted|replaces substitutes|taught instructed|trained schooled|train school
learned studied|named called|called named|names titles|elected chosen
refused rejected|refuses rejects|accepted admitted|granted awarded given|awarded granted given
won gained|lost forfeited|loses forfeits|lent advanced|owed due|owned possessed|owns possesses
owner holder|house building|houses buildings dwellings|road street|street road|path way
village settlement|people persons residents|person individual|persons people
staff personnel employees|workers labourers|worker labourer|boat vessel|boats vessels|ship vessel
ships vessels|child youngster|children youngsters|man fellow|men males|woman lady|women ladies
baker bread-maker|doctor physician|teacher instructor|chief head|head chief|boss chief|wages pay
salary wages pay|money funds|price cost|cost price|tax levy|fine penalty|rule regulation
rules regulations|law rule|job task|work labour|story account|book volume|books volumes
picture image|room chamber|rooms chambers|cellar basement|basement cellar|kitchen galley|roof top
wall barrier|door entrance|meal dinner|supper dinner evening-meal|food nourishment
illness disease sickness|disease illness|storm tempest|gale storm|rain rainfall|wind breeze
sea ocean|shore coast|coast shore|hill height|forest wood|woods forest|field meadow|meadow pasture
animal beast|animals beasts|cow cattle|trip journey|journey trip|speed pace|yearly annual
annual yearly|monthly each-month|rich wealthy|poor needy|empty vacant|full filled|cold chilly
hot warm|wet damp|dry arid|quick fast|fast quick|slow sluggish|strong powerful|weak feeble
famous well-known|new recent|main chief principal|principal main chief|final last|last final
first earliest|oldest earliest most-ancient|largest biggest|biggest largest|smallest littlest
highest tallest|often frequently|rarely seldom|nearly almost|usually normally|forced compelled
obliged required|whole entire|purpose aim|reason cause|danger peril|dangerous risky|safe secure
wrong mistaken|mistake error|helped aided|broke cracked|cracked broke|broken cracked
burned scorched|burst ruptured|fire blaze|feared dreaded|wanted wished|wants wishes
tried attempted|tries attempts|arrive come|arrives comes|arrived came|return come-back
returned came-back|reach get-to|reached got-to|stands is-situated|stood was-situated|measure gauge
measures gauges|measured gauged|counted numbered|counts numbers|divided split|split divided
mixed blended|painted coloured|white pale|record note|records notes|recorded noted
published issued|publishes issues|announced declared|promised pledged|decided resolved
resolved decided|proposed suggested|designed planned|planned designed|invented devised
introduced brought-in|abolished ended|celebrated marked|held kept|serves acts|served acted
contains holds|contain hold|contained held|consists is-made
"""


def lemma(word: str) -> str | None:
    """The base form of a verb's form, or None for what is no known verb."""
    return _forms().get(word.lower())


@cache
def _forms() -> dict[str, str]:
    forms = {}
    for base in _BASES.split():
        third = _third(base)
        for form in (base, third, past(base), _progressive(base)):
            forms[form] = base
    for base, *others in _irregular():
        for form in (base, _third(base), *others, _progressive(base)):
            forms[form] = base
    forms.update(lay="lay", laid="lay", wound="wind", found="find", left="leave", lying="lie")
    return forms


@cache
def _pasts() -> dict[str, str]:
    return {base: before for base, before, _ in _irregular()}


@cache
def _participles() -> dict[str, str]:
    return {done: before for _, before, done in _irregular()}


@cache
def past_forms() -> frozenset[str]:
    """Past tenses of the irregular verbs."""
    return frozenset(_pasts().values())


@cache
def participles() -> frozenset[str]:
    """Past participles of the irregular verbs."""
    return frozenset(_participles())


def past(base: str) -> str:
    """The past tense of a verb by its base form."""
    if base in _pasts():
        return _pasts()[base]
    if base.endswith("e"):
        return base + "d"
    if re.search(r"[^aeiou]y$", base):
        return base[:-1] + "ied"
    if re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", base) or base in (
        "permit",
        "transfer",
        "admit",
        "refer",
        "occur",
        "prefer",
        "expel",
    ):
        return base + base[-1] + "ed"
    return base + "ed"


def past_of_participle(word: str) -> str | None:
    """The past tense by the past participle: "written" to "wrote"; None for an unknown word."""
    low = word.lower()
    if low in _participles():
        return _participles()[low]
    return low if low.endswith("ed") else None


@cache
def synonyms() -> dict[str, list[str]]:
    """Words that may stand for a word in a question."""
    found: dict[str, list[str]] = {}
    for line in _SYNONYMS.split("\n"):
        for group in line.split("|"):
            head, *others = [word.replace("-", " ") for word in group.split()] or [""]
            if others:
                found.setdefault(head, []).extend(others)
    return found


@lru_cache(2**13)
def singular(word: str) -> str:
    """A noun without the ending of its plural, by rule."""
    low = word.lower()
    if low in ("feet", "pence", "men", "women", "children"):
        return {"feet": "foot", "men": "man", "women": "woman", "children": "child"}.get(low, low)
    if low in _SAME or (low.endswith("s") and low[:-1] in _SAME):
        return low
    if low.endswith("ies") and len(low) > 4:
        return low[:-3] + "y"
    if re.search(r"(?:ss|x|ch|sh)es$", low):
        return low[:-2]
    return low[:-1] if low.endswith("s") and not low.endswith(("ss", "us", "is")) else low


def plural(word: str) -> bool:
    """Whether a noun looks like a plural."""
    low = word.lower()
    return singular(low) != low or low in ("people", "cattle", "staff", "police")


def _irregular() -> list[list[str]]:
    return [entry.split() for line in _IRREGULAR.split("\n") for entry in line.split("|") if entry]


def _third(base: str) -> str:
    if base == "have":
        return "has"
    if re.search(r"[^aeiou]y$", base):
        return base[:-1] + "ies"
    return base + ("es" if re.search(r"(?:s|x|z|ch|sh|o)$", base) else "s")


def _progressive(base: str) -> str:
    if base.endswith("e") and not base.endswith("ee") and base not in ("be", "die", "lie", "tie"):
        return base[:-1] + "ing"
    if re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", base):
        return base + base[-1] + "ing"
    return base + "ing"
