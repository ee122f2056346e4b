"""How do the sentences of the little stories go, word by word with their exact tags?

In the notation of `jaxfeat.data.story_notation`.
"""

from jaxfeat.data import story_words as lexicon
from jaxfeat.data.story_notation import Template, lines, parse, phrases, word

# Clauses that assert a fact; `who`, `thing` and `place` are words of the lexicon.
HAS = phrases("""
{who} took/VBD/* the {thing}
{who} carried/VBD/* the {thing}
{who} held/VBD/* the {thing}
{who} had/VBD/* the {thing}
{who} brought/VBD/* the {thing}
{who} kept/VBD/* the {thing}
{who} took/VBD/* the {adj} {thing}
{who} had/VBD/* the {adj} {thing}
{who} {adv} grabbed/VBD/* the {thing}
{who} chose/VBD/* the {thing} again/RB/advmod
{who} picked/VBD/* up/RP/prt the {thing}
{who} got/VBD/* the {thing} from the {neighbour}
{who} did n't forget/VB/* the {thing}
{who} wanted/VBD/* to keep/VB/xcomp the {thing}
{who} would not leave/VB/* without the {thing}/pobj
{who} could not put/VB/* down/RP/prt the {thing}
the {thing}/nsubj belonged/VBD/* to/IN/prep {who}/pobj
the {thing}/nsubj was/VBD/* with {who}/pobj
""")
AT = phrases("""
{who} went/VBD/* to/IN/prep the {place}
{who} {move} to/IN/prep the {place}
{who} {adv} {move} to/IN/prep the {place}
{who} hurried/VBD/* to/IN/prep the {place}
{who} stayed/VBD/* {loc} the {place}
{who} waited/VBD/* {loc} the {place}
{who} played/VBD/* {loc} the {place}
{who} sat/VBD/* {loc} the {place}
{who} rested/VBD/* {loc} the {place}
{who} was/VBD/* {loc} the {place}
{who} had/VBD/* to go/VB/xcomp to/IN/prep the {place}
{who} decided/VBD/* to wait/VB/xcomp {loc} the {place}
{who} wanted/VBD/* to play/VB/xcomp {loc} the {place}
{who} did n't leave/VB/* the {place}/dobj
{who} could work/VB/* {loc} the {place}
{who} would stay/VB/* {loc} the {place}
{loc} the {place} stood/VBD/* {who}
{loc} the {place} sat/VBD/* {who}
""")
ALONE = parse("{c1}/ROOT .")
# Two clauses in one or two sentences.
PAIRS = lines("""
{c1}/ROOT . | {c2}/ROOT .
{c1}/ROOT . | {time} {c2}/ROOT .
{c1}/ROOT and {c2}/conj .
{c1}/ROOT , and {c2}/conj .
{c1}/ROOT , but {c2}/conj .
{c1}/ROOT while {c2}/advcl .
while {c1}/advcl , {c2}/ROOT .
""")
# Where a thing is: asks for the place of its holder, or for the thing of who is at a place.
WHERE = lines("""
`` Where is/VBZ/ccomp the {thing}/nsubj ? '' {asker} asked/VBD/* . | It was/VBD/* {loc} the
    {place} .
`` Where is/VBZ/ccomp the {thing}/nsubj ? '' {asker} asked/VBD/* . | `` It is/VBZ/ccomp {loc} the
    {place} , '' {speak} {b} .
{asker} asked/VBD/* , `` Where can we find/VB/ccomp the {thing} ? '' | `` You can find/VB/ccomp
    it/PRP/dobj {loc} the {place} , '' {speak} {a} .
Where was/VBD/* the {thing}/nsubj now ? | It was/VBD/* {loc} the {place} .
In the end/NN/pobj , the {thing}/nsubj was/VBD/* {loc} the {place} .
So the {thing}/nsubj went/VBD/* to/IN/prep the {place} too .
Everybody/NN/nsubj knew/VBD/* that/IN/mark the {thing}/nsubj was/VBD/ccomp {loc} the {place} .
To find/VB/advcl the {thing} , {asker} had/VBD/* to go/VB/xcomp to/IN/prep the {place} .
{asker} looked/VBD/* for the {thing}/pobj and found/VBD/conj it/PRP/dobj {loc} the {place} .
`` I need/VBP/ccomp the {thing} , '' said/VBD/* somebody/NN/nsubj . | `` Then/RB/advmod
    go/VB/ccomp to/IN/prep the {place} ! '' they shouted/VBD/* .
{asker} wanted/VBD/* the {thing} and had/VBD/conj to go/VB/xcomp to/IN/prep the {place} .
""")
WHAT = lines("""
`` What/WP/nsubj is/VBZ/ccomp {loc} the {place} ? '' {asker} asked/VBD/* . | It was/VBD/* the
    {thing}/attr .
`` What/WP/nsubj is/VBZ/ccomp {loc} the {place} ? '' {asker} asked/VBD/* . | `` It is/VBZ/ccomp
    the {thing}/attr , '' {speak} {b} .
What/WP/nsubj was/VBD/* {loc} the {place} now ? | It was/VBD/* the {thing}/attr .
{loc} the {place} , {asker} saw/VBD/* the {thing} .
{asker} looked/VBD/* {loc} the {place} and saw/VBD/conj the {thing} .
So the {place}/nsubj was/VBD/* the home/NN/attr of the {thing}/pobj now .
{loc} the {place} there was/VBD/* only/RB/advmod the {thing}/attr .
`` What/WP/dobj can you see/VB/ccomp {loc} the {place} ? '' {asker} asked/VBD/* . | `` I can
    see/VB/ccomp the {thing} , '' {speak} {a} .
Who/WP/nsubj came/VBD/csubj to/IN/prep the {place} could touch/VB/* the {thing} .
""")

# What a story asks one hop back: how a word is first said, and how it comes again.
RECALL = {
    "weather": (
        lines("""
it was/VBD/* a {weather} {unit}/attr .
it was/VBD/* {degree} {weather}/acomp that {unit}/npadvmod .
the {unit}/nsubj was/VBD/* {weather}/acomp and the {nature} {shine}/conj {skyadv} .
the weather/NN/nsubj was/VBD/* {degree} {weather}/acomp .
outside/RB/advmod it was/VBD/* {weather}/acomp .
"""),
        lines("""
they did not mind/VB/* that/IN/mark it was/VBD/ccomp so {weather}/acomp .
`` I like/VBP/ccomp it/PRP/dobj when it is/VBZ/advcl {weather}/acomp , '' {speak} {a} .
`` Why is/VBZ/ccomp it so {weather}/acomp ? '' {b} asked/VBD/* .
nobody/NN/nsubj stayed/VBD/* there because it was/VBD/advcl {weather}/acomp .
{a} wrote/VBD/* home/RB/advmod that/IN/mark the {unit}/nsubj was/VBD/ccomp {weather}/acomp .
the weather/NN/nsubj was/VBD/* still/RB/advmod {weather}/acomp when they {move}/advcl
    home/RB/advmod .
"""),
    ),
    "colour": (
        lines("""
they came/VBD/* to/IN/prep a {colour} {coloured}/pobj .
{a} saw/VBD/* a {colour} {coloured}/dobj {path} .
{subj} {time} found/VBD/* a {adj} {colour} {coloured}/dobj .
a {colour} {coloured}/nsubj stood/VBD/* {path} .
there was/VBD/* a {colour} {coloured}/attr {path} .
"""),
        lines("""
`` What/WDT/det colour/NN/attr was/VBD/ccomp the {coloured}/nsubj ? '' {asker} asked/VBD/* . | ``
    It was/VBD/ccomp {colour}/acomp , '' {speak} {a} .
{a} never/RB/neg forgot/VBD/* that/IN/mark the {coloured}/nsubj was/VBD/ccomp {colour}/acomp .
{b} liked/VBD/* the {coloured}/dobj because it was/VBD/advcl {colour}/acomp .
`` Why is/VBZ/ccomp the {coloured}/nsubj {colour}/acomp ? '' {b} asked/VBD/* .
{a} remembered/VBD/* the {colour} {coloured}/dobj {adv} .
"""),
    ),
    "food": (
        lines("""
{subj} ate/VBD/* some {food} for {meal} .
for {meal} they shared/VBD/* some {food} .
{a} cooked/VBD/* some {food} for {b}/pobj .
{a} found/VBD/* some {food} {path} .
{a} gave/VBD/* {b}/dative some {food} .
"""),
        lines("""
`` Thank/VBP/ccomp you/PRP/dobj for the {food}/pobj , '' {speak} {b} .
{b} asked/VBD/* for more/JJR/amod {food}/pobj .
they liked/VBD/* the {food} very/RB/advmod much/RB/advmod .
{a} could not finish/VB/* the {food} .
`` I will/MD/aux never/RB/neg forget/VB/ccomp the {food} , '' {speak} {a} .
nobody/NN/nsubj {act} before/IN/mark the {food}/nsubj was/VBD/advcl ready/JJ/acomp .
"""),
    ),
    "animal": (
        lines("""
they met/VBD/* a {adj} {animal} {path} .
{a} saw/VBD/* a {animal} {path} .
a {adj} {animal}/nsubj sat/VBD/* {path} .
suddenly/RB/advmod , a {animal}/nsubj came/VBD/* {path} .
there was/VBD/* a {animal}/attr {path} .
"""),
        lines("""
{a} waved/VBD/* to/IN/prep the {animal}/pobj {adv} .
they said/VBD/* goodbye/NN/dobj to/IN/prep the {animal}/pobj .
that night/NN/npadvmod {b} dreamed/VBD/* of the {animal}/pobj .
`` The {animal}/nsubj is/VBZ/ccomp my friend/NN/attr , '' {speak} {a} .
`` Can the {animal}/nsubj stay/VB/ccomp with us/PRP/pobj ? '' {b} asked/VBD/* .
the {animal}/nsubj wanted/VBD/* to {act_vb}/xcomp with them/PRP/pobj .
"""),
    ),
    "feeling": (
        lines("""
{a} felt/VBD/* {degree} {feeling} .
{a} was/VBD/* {feeling} that {unit}/npadvmod .
in the beginning/NN/pobj {a} was/VBD/* {degree} {feeling} .
{a} looked/VBD/* {feeling} and {act}/conj {adv} .
"""),
        lines("""
`` Why are/VBP/ccomp you so {feeling} ? '' {b} asked/VBD/* .
{b} could see/VB/* that/IN/mark {a} was/VBD/ccomp {feeling} .
`` You must not be/VB/ccomp {feeling} , '' {speak} {b} .
{b} did not understand/VB/* why {a} was/VBD/ccomp so {feeling} .
in the end/NN/pobj {a} was/VBD/* not {feeling} at all/DT/pobj .
"""),
    ),
    "number": (
        lines("""
they saw/VBD/* {number} {counted}/dobj {path} .
{a} counted/VBD/* {number} {adj} {counted}/dobj .
there were/VBD/* {number} {counted}/attr {path} .
suddenly/RB/advmod {number} {counted}/nsubj came/VBD/* {path} .
"""),
        lines("""
`` There were/VBD/ccomp {number} {counted}/attr , '' {speak} {a} .
{b} could not believe/VB/* that/IN/mark there were/VBD/ccomp {number} {counted}/attr .
{a} {time} drew/VBD/* all/PDT/predet the {number} {counted}/dobj .
the {number} {counted}/nsubj were/VBD/* {degree} {mood} .
"""),
    ),
    "find": (
        lines("""
they found/VBD/* a {adj} {find}/dobj {path} .
{a} saw/VBD/* a {find}/dobj {path} .
there was/VBD/* a {find}/attr {path} .
a {adj} {find}/nsubj lay/VBD/* {path} .
"""),
        lines("""
`` May/MD/aux I have/VB/ccomp the {find}/dobj ? '' {b} asked/VBD/* .
they gave/VBD/* the {find}/dobj to/IN/dative the {neighbour} .
{a} cleaned/VBD/* the {find}/dobj {adv} .
nobody/NN/nsubj knew/VBD/* the owner/NN/dobj of the {find}/pobj .
`` We should hide/VB/ccomp the {find}/dobj , '' {speak} {b} .
"""),
    ),
}

# Beginning and end. `people` is the list of the introduced characters.
OPENINGS = lines("""
Once upon/IN/prep a time/NN/pobj there/EX/expl lived/VBD/* {people}/nsubj in a {fine} {land} .
Once upon/IN/prep a time/NN/pobj , in a {fine} {land} , there/EX/expl lived/VBD/* {people}/nsubj .
Long/RB/advmod ago/RB/advmod , {people}/nsubj lived/VBD/* together/RB/advmod in a {fine} {land} .
There/EX/expl was/VBD/* once {people}/attr .
This/DT/nsubj is/VBZ/* the story/NN/attr of {people}/pobj .
In a {fine} {land} lived/VBD/* {people}/nsubj .
Many/JJ/amod years/NNS/npadvmod ago/RB/advmod , {people}/nsubj lived/VBD/* in the {fine} {land} .
""")
INTRODUCTIONS = phrases("""
a {kind}/* named/VBN/acl {name}/oprd
a {trait} {kind}/* named/VBN/acl {name}/oprd
a {kind}/* called/VBN/acl {name}/oprd
a {trait} {kind}/* called/VBN/acl {name}/oprd
a {trait} {kind}/* whose/WP$/poss name/NN/nsubj was/VBD/relcl {name}/attr
""")
PEOPLE = {
    2: parse("{p1}/* and {p2}/conj")[0],
    3: parse("{p1}/* , {p2}/conj and {p3}/conj")[0],
    4: parse("{p1}/* , {p2}/conj , {p3}/conj and {p4}/conj")[0],
}
FRIENDS = lines("""
they were/VBD/* good/JJ/amod friends/NNS/attr .
they {frequency} played/VBD/* together/RB/advmod .
they {help} the {fine} {neighbour}/dobj , but they had/VBD/conj no money/NN/dobj .
they were/VBD/* friends/NNS/attr because they {frequency} told/VBD/advcl the truth/NN/dobj .
they wanted/VBD/* to see/VB/xcomp the world/NN/dobj .
everybody/NN/nsubj knew/VBD/* them/PRP/dobj .
""")
ANNOUNCEMENTS = lines("""
they had/VBD/* {count} {units}/dobj .
they had/VBD/* {count} {units}/dobj for their journey/NN/pobj .
{count} {units}/nsubj lay/VBD/* before them/PRP/pobj .
their journey/NN/nsubj took/VBD/* {count} {units}/dobj .
they wanted/VBD/* to spend/VB/xcomp {count} {units}/dobj together/RB/advmod .
`` We have/VBP/ccomp {count} {units}/dobj , '' {speak} {a} .
this/DT/nsubj is/VBZ/* what/WP/nsubj happened/VBD/ccomp in {count} {units}/pobj .
""")
OPENERS = lines("""
{uprep} the {ord} {unit}/pobj , {clause} .
{uprep} the {ord} {unit}/pobj , {clause} .
{uprep} the {ord}/pobj of the {count} {units}/pobj , {clause} .
the {ord} {unit}/nsubj came/VBD/* and {clause}/conj .
the {ord} {unit}/nsubj began/VBD/* {skyadv} .
{uprep} the {ord} {unit}/pobj they got/VBD/* up/RP/prt {adv} .
then/RB/advmod the {ord} {unit}/nsubj came/VBD/* .
{clause} {uprep} the {ord} {unit}/pobj .
it was/VBD/* the {ord} {unit}/attr , and {clause}/conj .
""")
LAST_OPENERS = lines("""
{uprep} the {ord} and last/JJ/conj {unit}/pobj , {clause} .
the {ord} and last/JJ/conj {unit}/nsubj began/VBD/* {skyadv} .
""")
REMAINING = lines("""
now {left} {unit_left}/nsubj remained/VBD/* .
they still/RB/advmod had/VBD/* {left} {unit_left}/dobj .
""")
ENDINGS = lines("""
when the {count} {units}/nsubj were/VBD/advcl over/RB/advmod , they {move} home/RB/advmod {adv} .
after the {count} {units}/pobj , {subj} {move} home/RB/advmod .
so the {count} {units}/nsubj ended/VBD/* and they went/VBD/conj home/RB/advmod .
the {count} {units}/nsubj were/VBD/* over/RB/advmod and everybody/NN/nsubj {act}/conj {adv} .
""")
MORALS = lines("""
they had/VBD/aux learned/VBN/* that/IN/mark {virtue}/nsubj is/VBZ/ccomp better/JJR/acomp
    than/IN/prep {riches} .
`` {virtue}/nsubj is/VBZ/ccomp worth/JJ/acomp more/JJR/dobj than/IN/prep {riches} , '' {speak} {a} .
with {virtue} and {virtue2}/conj , everybody/NN/nsubj can {act_vb}/* .
never/RB/neg forget/VB/* {virtue}/dobj and {virtue2}/conj .
{a} had/VBD/* {virtue}/dobj , and {b} had/VBD/conj {virtue2}/dobj .
""")
FAREWELLS = lines("""
they lived/VBD/* happily/RB/advmod ever/RB/advmod after/RB/advmod .
and they were/VBD/* friends/NNS/attr for ever/RB/pcomp .
good/JJ/amod night/NN/* !
this/DT/nsubj is/VBZ/* the end/NN/attr .
and that/DT/nsubj was/VBD/* the end/NN/attr of the story/NN/pobj .
sleep/VB/* well/RB/advmod !
""")

# Sentences that only tell what goes on; none asserts a fact that a story keeps.
SENTENCES = lines("""
{clause} .
{clause} .
{time} {clause} .
{time} , {clause} .
{clause} and {clause}/conj .
{clause} , but {clause}/conj .
{clause} , and {clause}/conj .
after the {game}/pobj , {clause} .
`` We must {craft_vb}/ccomp the {crafted} , '' {speak} {a} .
`` I am/VBP/ccomp {degree} {mood} , '' {speak} {b} .
`` Can you {see_vb}/ccomp the {sight} ? '' {a} asked/VBD/* .
`` Please/UH/intj {act_vb}/ccomp {adv} ! '' {b} begged/VBD/* .
`` Let/VB/ccomp us/PRP/nsubj {act_vb}/ccomp {adv} , '' {speak} {a} .
`` You are/VBP/ccomp {degree} {mood} , '' {speak} {b} .
`` We could {gather_vb}/ccomp the {heap} , '' {speak} {a} .
`` Do/VB/aux not {open_vb}/ccomp the {lid} ! '' {b} shouted/VBD/* .
{a} {speak} , `` We should {help_vb}/ccomp the {neighbour}/dobj . ''
`` This/DT/nsubj is/VBZ/ccomp a {adj} {crafted}/attr , '' {speak} {b} .
`` Yes/UH/intj , '' {speak} {a} and {act}/conj .
""")
CLAUSES = phrases("""
{subj} {see} a {fine} {sight}
{subj} {see} the {sight} {path}
{subj} could {see_vb} the {fine} {sight}
{subj} {craft} the {adj} {crafted}
{subj} {craft} a {crafted} {adv}
{subj} did not {craft_vb} the {crafted}
{subj} {wish} to {craft_vb}/xcomp a {adj} {crafted}
{a} {tell} a {fine} {tale}
{a} told/VBD/* {b}/dative a {fine} {tale}
{b} {tell} {a}/poss 's/POS/case {tale}
{subj} {gather} the {adj} {heap}
{subj} {gather} some {heap}
{subj} would {gather_vb} the {heap}
{subj} {play} a {fine} {game}
{subj} {wish} to {play_vb}/xcomp the {game}
{a} {open} the {adj} {lid}
{b} did not {open_vb} the {lid}
{a} {open} the {lid} {adv}
{a} {wear} {his} {adj} {cloth}
{a} {wear} the {cloth}
{a} {help} the {fine} {neighbour}/dobj
{a} {help} {b}/dobj {adv}
{subj} might {help_vb} the {neighbour}/dobj
{a} wanted/VBD/* to {help_vb}/xcomp {b}/dobj
{subj} {move} {path}
{subj} {move} {path}
{subj} {adv} {move} {path}
{subj} {move} {path} and {act}/conj {adv}
{subj} could not {move_vb} {path}
{subj} {wish} to {move_vb}/xcomp {path}
{subj} {act} {adv}
{subj} {act} and {act2}/conj
{subj} {frequency} {act}
{a} did not {act_vb} , but {b} {act}/conj
{a} {act} because {he} was/VBD/advcl {mood}
{a} {act} when {b} {move}/advcl {path}
{a} was/VBD/* {degree} {mood}
{b} was/VBD/* {frequency} {mood}
they were/VBD/* {degree} {mood}
{a} looked/VBD/* {mood}
{a} and {b}/conj were/VBD/* {mood}
the {nature} {shine} {skyadv}
the {nature} {shine} and the {nature2} {shine2}/conj
the {fine} {neighbour}/nsubj {act} {adv}
there was/VBD/* a {fine} {sound} {path}
{subj} heard/VBD/* a {fine} {sound}/dobj
there was/VBD/* {event}/attr {path}
they had/VBD/* some {event}/dobj {path}
{a} thought/VBD/* that/IN/mark {b} was/VBD/ccomp {mood}
{b} hoped/VBD/* that/IN/mark {a} would {act_vb}/ccomp
{subj} knew/VBD/* that/IN/mark the {neighbour}/nsubj would {help_vb}/ccomp them/PRP/dobj
it was/VBD/* {degree} {hardness}/acomp to {craft_vb}/xcomp the {crafted}
{a} gave/VBD/* {b}/dative a {fine} {gift}
{a} had/VBD/* a {fine} idea/NN/dobj
{a} {act} , and {b} {help}/conj {him}
{b} could {act_vb} {adv}
{b} must {wear_vb} the {adj} {cloth}
nobody/NN/nsubj could {open_vb} the {lid}
""")


def _roles() -> dict[str, tuple[Template, ...]]:
    """What may fill each free slot."""
    roles: dict[str, tuple[Template, ...]] = {"clause": CLAUSES}
    roles["subj"] = phrases("{a}/*\n{a}/*\n{b}/*\n{b}/*\nthey/PRP/*\n{a}/* and {b}/conj")
    nouns = {
        "sight": lexicon.SIGHTS, "crafted": lexicon.CRAFTS, "tale": lexicon.TALES,
        "game": lexicon.GAMES, "lid": lexicon.LIDS, "cloth": lexicon.CLOTHES,
        "neighbour": lexicon.NEIGHBOURS, "sound": lexicon.SOUNDS, "nature": lexicon.NATURE,
        "event": lexicon.EVENTS, "land": lexicon.LANDS, "gift": lexicon.GIFTS,
        "virtue": lexicon.VIRTUES, "meal": lexicon.MEALS,
    }  # fmt: skip
    adjectives = {
        "adj": lexicon.LOOKS + lexicon.QUALITIES, "fine": lexicon.QUALITIES,
        "trait": lexicon.TRAITS, "mood": lexicon.MOODS, "hardness": lexicon.HARDNESS,
    }  # fmt: skip
    adverbs = {
        "adv": lexicon.ADVERBS, "skyadv": lexicon.SKY_ADVERBS, "time": lexicon.TIMES,
        "degree": lexicon.DEGREES, "frequency": lexicon.FREQUENCIES,
    }  # fmt: skip
    for pos, group in (("NN", nouns), ("JJ", adjectives), ("RB", adverbs)):
        for name, words in group.items():
            roles[name] = tuple(word(w, pos) for w in words)
    roles["heap"] = tuple(word(w, "NNS") for w in lexicon.HEAPS)
    roles["riches"] = tuple(
        word(w, "NNS" if w in lexicon.PLURAL_RICHES else "NN") for w in lexicon.RICHES
    )
    roles["speak"] = tuple(word(w, "VBD") for w in lexicon.SPEAK_VERBS)
    verbs = {
        "see": lexicon.SEE_VERBS, "craft": lexicon.CRAFT_VERBS, "tell": lexicon.TELL_VERBS,
        "gather": lexicon.GATHER_VERBS, "play": lexicon.GAME_VERBS, "open": lexicon.OPEN_VERBS,
        "wear": lexicon.WEAR_VERBS, "help": lexicon.HELP_VERBS, "move": lexicon.MOVE_VERBS,
        "act": lexicon.ACT_VERBS, "wish": lexicon.WISH_VERBS, "shine": lexicon.NATURE_VERBS,
    }  # fmt: skip
    for name, pairs in verbs.items():
        roles[name] = tuple(word(past, "VBD") for past, _ in pairs)
        roles[name + "_vb"] = tuple(word(base, "VB") for _, base in pairs)
    roles["path"] = phrases("{path_preposition}/* the {path_noun}/pobj")
    roles["path_preposition"] = tuple(word(w, "IN") for w in lexicon.PATH_PREPOSITIONS)
    roles["path_noun"] = tuple(
        word(w, "NNS" if w in lexicon.PLURAL_PATHS else "NN") for w in lexicon.PATHS
    )
    for name in ("act", "shine", "nature", "virtue"):  # a second one in the same sentence
        roles[name + "2"] = roles[name]
    return roles


ROLES = _roles()
