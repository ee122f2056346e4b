"""Which words may the little stories use, and in which role?

A verb is written past/base. The kinds that a story asks about (things, places, foods, weathers,
colours, animals, feelings, numbers) share no word with each other or with any other role, so that
the word asked for is told by its kind alone; the tests check it.
"""


def _words(text: str) -> tuple[str, ...]:
    """The words of a list."""
    return tuple(text.split())


def _verbs(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs (past, base) of a list of past/base."""
    return tuple((past, base) for past, base in (pair.split("/") for pair in text.split()))


# Characters: a name tells the pronoun; no name is also an English word.
HE_NAMES = _words("""
Ben Tom Max Leo Sam Oscar Felix Rufus Bruno Hugo Otto Emil Anton Theo Finn Noah Luke Simon Peter
Paul Henry Edgar Albert Arthur Walter Victor Martin Oliver Samuel Daniel David Gabriel Isaac Jacob
Julian Kevin Lionel Milo Nathan Owen Philip Quentin Robert Stefan Tobias Ulric Vincent Wilbur Xavier
Yusuf Zachary Ahmed Boris Carlos Dmitri Ethan Gustav Ivan Jasper Konrad
""")
SHE_NAMES = _words("""
Mia Anna Ella Emma Lucy Nora Clara Sara Maria Julia Laura Alice Bella Celia Dora Edith Fiona Greta
Hanna Irene Jenny Karin Lena Molly Nina Olga Paula Rita Sonia Tina Ursula Vera Wanda Yvonne Zelda
Agnes Beatrice Charlotte Diana Eleanor Florence Gloria Harriet Ingrid Josephine Katherine Leila
Matilda Naomi Ottilie Priya Rosalind Sophie Tamara Veronica Winnie Yasmin Zora Amelia Bridget
""")
HE_KINDS = _words("boy prince shepherd sailor king wizard uncle grandfather woodcutter knight")
SHE_KINDS = _words("girl princess queen witch aunt grandmother dancer fairy maid seamstress")
EITHER_KINDS = _words("""
fox bear rabbit mouse hedgehog squirrel wolf lion tiger elephant monkey kitten puppy pony dragon
giant robot bunny panda raccoon hamster koala child youngster dwarf elf farmhand troll
""")
TRAITS = _words("""
brave clever kind curious shy cheerful lazy gentle patient stubborn noisy quiet honest polite bold
dreamy playful careful tiny tall young little small friendly loyal modest sleepy nimble wise
""")

# What a story asks about.
THINGS = _words("""
kite drum lantern rope basket bucket ladder shovel hammer trumpet flute violin banjo compass
map telescope mirror umbrella blanket pillow candle lamp broom brush comb kettle teapot saucepan
spoon cup plate jug bottle barrel sack suitcase purse wallet ring necklace bracelet crown medal coin
jewel pearl key padlock chain anchor oar paddle net hook arrow shield sword helmet
saddle whip wheel pump hose rake spade axe needle thread ribbon doll teddy puppet marble
balloon hoop skateboard scooter sponge towel soap bell clock camera radio magnet battery
notebook pencil crayon paintbrush envelope stamp parcel postcard dictionary diary
newspaper calendar vase flowerpot statue wand crystal tambourine harp xylophone
boomerang chessboard tent hammock backpack flashlight
""")
# The preposition of a place; two places of one episode share it, so that it gives nothing away.
PLACES = {
    "in": _words("""
barn forest garden kitchen cave castle tower attic cellar library museum bakery stable orchard
meadow valley jungle desert swamp cottage cabin palace temple church shop greenhouse workshop
laundry nursery pantry hallway gym zoo park theatre bank hotel office hospital tunnel
village city canyon
"""),
    "at": _words("""
market station harbour airport mill farm school inn fair circus playground stadium lighthouse
quarry crossroads fountain well dock camp cinema pharmacy university campsite
"""),
    "on": _words("""
hill mountain beach island roof bridge balcony terrace cliff platform deck ridge porch staircase
lawn raft ferry pier dune stage
"""),
    "by": _words("""
river lake pond stream brook sea canal waterfall shore oak willow hedge signpost fireplace chimney
windmill dam monument
"""),
}
# Foods that come in heaps: "some soup", "some plums".
FOODS = _words("""
soup bread cheese butter honey porridge rice pasta stew pudding salad ham toast yoghurt jam cake
chocolate popcorn fudge custard gravy oatmeal spinach lettuce cabbage broccoli celery garlic pepper
ginger cinnamon milk tea juice lemonade cocoa cider
""")
FOODS_PLURAL = _words("""
plums pears apples cherries grapes berries peaches lemons oranges bananas melons figs dates nuts
almonds raisins cookies muffins pancakes waffles biscuits dumplings noodles sausages carrots peas
beans potatoes onions mushrooms tomatoes radishes turnips pickles olives sandwiches pies crackers
pretzels pumpkins eggs buns
""")
WEATHERS = _words("""
windy rainy sunny snowy foggy stormy cloudy misty frosty chilly breezy icy humid drizzly hot cold
warm mild wet dry muggy freezing scorching gloomy blustery
""")
COLOURS = _words("""
red blue green yellow orange purple pink brown black white grey golden silver crimson scarlet violet
turquoise beige maroon lilac ivory amber
""")
COLOURED = _words("door boat flag curtain carriage tractor cart lorry bicycle sofa mailbox train")
ANIMALS = _words("""
owl deer frog toad duck goose swan hen rooster cow goat sheep lamb donkey horse camel zebra giraffe
kangaroo otter beaver mole weasel badger hare rat bat crow raven robin sparrow parrot peacock
penguin pigeon eagle hawk heron stork seal whale dolphin turtle tortoise snail lizard snake
crocodile crab lobster octopus spider ant bee beetle cricket ladybird caterpillar moth llama ostrich
moose leopard cheetah walrus hippo
""")
FEELINGS = _words("""
happy sad angry afraid proud jealous lonely bored excited nervous worried ashamed grateful hopeful
surprised confused upset calm thirsty hungry tired homesick cross joyful miserable furious anxious
embarrassed disappointed content
""")
NUMBERS = _words("""
seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen twenty thirty forty
""")
COUNTED = _words("ships horsemen soldiers tents chimneys windows barges dancers bonfires beehives")

# The order of a story: how many parts it has, and which one it is at.
ORDINALS = _words("first second third fourth fifth sixth")
COUNTS = _words("one two three four five six")
# Singular, plural, preposition of the part, in the order word, plural word, preposition.
UNITS = tuple(
    tuple(unit.split("/"))
    for unit in _words("day/days/on morning/mornings/on evening/evenings/on night/nights/on "
                       "afternoon/afternoons/on week/weeks/in month/months/in trip/trips/on")
)  # fmt: skip

# Verbs with what they are done to, so that the sentences make some sense.
SEE_VERBS = _verbs("""
saw/see noticed/notice spotted/spot watched/watch admired/admire studied/study drew/draw
sketched/sketch described/describe photographed/photograph enjoyed/enjoy liked/like loved/love
""")
SIGHTS = _words("""
cloud rainbow butterfly sunset moon star comet shadow footprint nest web puddle glacier volcano
horizon sunrise reflection snowflake icicle dragonfly firefly cactus tulip daffodil sunflower fern
landscape parade whirlwind iceberg planet
""")
CRAFT_VERBS = _verbs("""
built/build mended/mend painted/paint polished/polish cleaned/clean fixed/fix measured/measure
carved/carve decorated/decorate dusted/dust scrubbed/scrub repaired/repair moved/move lifted/lift
drilled/drill sanded/sand varnished/varnish designed/design examined/examine swept/sweep
""")
CRAFTS = _words("""
chair table fence sled shelf wall bench wagon cage stool cupboard cradle bookcase desk wardrobe
swing seesaw treehouse birdhouse snowman sandcastle kennel hut canoe sailboat rocket
machine engine toy loom trellis
""")
TELL_VERBS = _verbs("""
told/tell wrote/write heard/hear shared/share remembered/remember learned/learn recited/recite
whispered/whisper repeated/repeat invented/invent practised/practise explained/explain
""")
TALES = _words("""
tale joke poem riddle song secret rhyme legend lesson speech prayer trick plan rumour message
fable proverb lullaby melody ballad sentence nickname recipe rule
""")
GATHER_VERBS = _verbs("""
picked/pick gathered/gather collected/collect counted/count sorted/sort hid/hide washed/wash
stacked/stack traded/trade sold/sell scattered/scatter arranged/arrange
""")
HEAPS = _words("""
shells pebbles acorns leaves feathers flowers twigs stones pinecones seeds daisies roses petals
sticks logs bricks tiles ropes nails beads stickers badges
roots herbs weeds chestnuts reeds ferns straws
""")
GAME_VERBS = _verbs("""
played/play started/start won/win lost/lose planned/plan ended/end missed/miss judged/judge
joined/join organised/organise
""")
GAMES = _words("""
game race contest dance match puzzle concert party picnic show tournament quiz feast festival
rehearsal competition wedding duel
""")
OPEN_VERBS = _verbs("""
opened/open closed/close locked/lock unlocked/unlock pushed/push pulled/pull kicked/kick tapped/tap
touched/touch shook/shake dropped/drop
""")
LIDS = _words("gate lid drawer chest trunk box crate hatch shutter cabinet trapdoor casket locker")
WEAR_VERBS = _verbs("""
wore/wear folded/fold packed/pack ironed/iron buttoned/button stitched/stitch borrowed/borrow
stretched/stretch soaked/soak patched/patch
""")
CLOTHES = _words("""
coat scarf hat cap jacket sweater shirt skirt dress cloak apron vest robe uniform costume cardigan
pullover glove sock boot slipper sandal belt bonnet kimono shawl
""")
HELP_VERBS = _verbs("""
helped/help thanked/thank hugged/hug greeted/greet followed/follow called/call answered/answer
teased/tease kissed/kiss trusted/trust forgave/forgive warned/warn invited/invite comforted/comfort
praised/praise encouraged/encourage visited/visit tickled/tickle believed/believe chased/chase
impressed/impress obeyed/obey
""")
NEIGHBOURS = _words("""
miller baker farmer teacher doctor nurse tailor blacksmith postman fisherman hunter gardener judge
mayor librarian butcher carpenter painter singer musician captain pirate guard servant stranger
traveller merchant soldier neighbour beggar clown magician pilot driver plumber dentist inventor
scientist astronaut juggler acrobat poet potter weaver barber cook waiter porter
""")
MOVE_VERBS = _verbs("""
ran/run walked/walk hopped/hop jumped/jump skipped/skip crawled/crawl climbed/climb wandered/wander
marched/march galloped/gallop tiptoed/tiptoe sneaked/sneak dashed/dash stumbled/stumble
rolled/roll slid/slide glided/glide rushed/rush trotted/trot limped/limp strolled/stroll
danced/dance swam/swim flew/fly drifted/drift bounced/bounce charged/charge scrambled/scramble
plodded/plod paraded/parade
""")
PATH_PREPOSITIONS = _words("over across along through around under past beyond behind beside near")
PATHS = _words("""
path road grass field bush bushes puddles tree trees rock rocks fields lane street trail gap ditch
log mud sand snow corner slope crowd vineyard thicket clearing pasture courtyard square boulder
archway footbridge pavement riverbank cornfield maze hedgerow stile pillar tombstone haystack
""")
PLURAL_PATHS = frozenset(("bushes", "puddles", "trees", "rocks", "fields"))
ACT_VERBS = _verbs("""
laughed/laugh giggled/giggle smiled/smile sang/sing shouted/shout cheered/cheer clapped/clap
yawned/yawn sighed/sigh sneezed/sneeze coughed/cough cried/cry slept/sleep rested/rest waited/wait
listened/listen nodded/nod waved/wave bowed/bow whistled/whistle hummed/hum snored/snore
trembled/tremble shivered/shiver blinked/blink frowned/frown grinned/grin winked/wink
stared/stare paused/pause worked/work argued/argue chatted/chat prayed/pray dreamed/dream
relaxed/relax blushed/blush hesitated/hesitate complained/complain celebrated/celebrate
exercised/exercise concentrated/concentrate
""")
WISH_VERBS = _verbs("""
wanted/want tried/try began/begin hoped/hope decided/decide promised/promise forgot/forget
agreed/agree refused/refuse longed/long managed/manage offered/offer needed/need learnt/learn
""")
SPEAK_VERBS = _words("said replied exclaimed announced muttered remarked added declared")
NATURE = _words("""
sun breeze wind fire thunder water fog sky air earth light mist dust ice smoke lightning
frost dew rain
""")
NATURE_VERBS = _verbs("""
shone/shine glowed/glow faded/fade sparkled/sparkle vanished/vanish rose/rise
appeared/appear returned/return grew/grow changed/change glittered/glitter shimmered/shimmer
arrived/arrive disappeared/disappear
""")
SOUNDS = _words("""
noise sound voice echo bang rumble splash crash rustle creak squeak hiss murmur roar
rattle whisper knock thud hoot growl scream
""")

# Describing words.
LOOKS = _words("""
old new big large huge short long wide narrow heavy smooth rough soft round broken shiny dusty dirty
rusty wooden plain hollow empty crooked steep deep bright dark pale dull colourful spotted striped
fluffy sticky slippery fragile sturdy solid flat thick thin loose enormous gigantic delicate
sparkling gleaming ragged tidy untidy shabby cheap ancient modern polished painted
""")
QUALITIES = _words("""
lovely pretty beautiful ugly strange odd funny simple precious rare common perfect famous splendid
graceful elegant mysterious marvellous ordinary unusual special valuable useful useless favourite
familiar foreign royal noble humble silent glorious charming impressive wonderful amazing peculiar
handsome magnificent clumsy pleasant peaceful popular remarkable secret sweet terrible
""")
MOODS = _words("""
busy ready safe late early lucky strong weak awake asleep alone fine sure glad thankful
merry restless serious fearless helpful truthful dizzy breathless careless thoughtful
pleased relieved puzzled amused delighted fortunate generous
""")
EVENTS = _words("""
fun trouble luck magic danger silence peace joy laughter music excitement confusion wonder mischief
""")
ADVERBS = _words("""
quickly slowly quietly loudly happily sadly gently carefully eagerly bravely politely softly
suddenly proudly calmly gladly kindly neatly boldly cheerfully clumsily patiently secretly
nervously playfully lazily swiftly merrily gracefully silently warmly wisely angrily anxiously
awkwardly briskly curiously easily elegantly fiercely foolishly gratefully greedily hastily heavily
honestly hurriedly innocently joyfully lightly madly noisily peacefully promptly rapidly sleepily
smoothly sternly strangely thoughtfully tightly together wearily wildly
""")
SKY_ADVERBS = _words("""
again slowly suddenly brightly faintly everywhere overhead nearby outside above quietly gradually
softly steadily
""")
TIMES = _words("soon then later afterwards meanwhile finally next eventually nevertheless instead")
DEGREES = _words("very so quite rather really too truly extremely terribly fairly")
FREQUENCIES = _words("often always never sometimes usually rarely still almost nearly just")

HARDNESS = _words("easy difficult impossible hard nice exciting boring")
GIFTS = _words("smile present wink handshake surprise compliment pat")
MEALS = _words("breakfast lunch dinner supper dessert")

# Beginnings and ends.
LANDS = _words("""
land country kingdom town hamlet region world province empire suburb settlement
""")
VIRTUES = _words("""
friendship kindness courage patience honesty hope love trust wisdom truth courtesy generosity
gratitude loyalty humour curiosity modesty sharing teamwork practice forgiveness humility
""")
RICHES = _words("""
gold money fame power riches beauty strength speed glory wealth treasure diamonds fortune victory
medicine thunderbolts
""")
PLURAL_RICHES = frozenset(("riches", "diamonds"))
