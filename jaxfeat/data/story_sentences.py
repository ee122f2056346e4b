"""How do the sentences around the facts of the little stories go: openings, endings, fillers?

In the notation of `jaxfeat.data.story_notation`.
"""

from jaxfeat.data import story_words as lexicon
from jaxfeat.data.story_notation import Template, lines, parse, phrases, word

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
