"""How are facts stated in the little stories, and how are they asked for?

In the notation of `jaxfeat.data.story_notation`.
"""

from jaxfeat.data.story_notation import lines, parse, phrases

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
