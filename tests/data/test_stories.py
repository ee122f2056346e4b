"""Are the little stories reproducible, exactly tagged, and free of give-aways?"""

import re
from collections import Counter, defaultdict

import numpy as np
import pytest

from jaxfeat.data import (
    stories,
    story_notation,
    story_questions,
    story_sentences,
    story_text,
    tagged,
)
from jaxfeat.data import story_words as lexicon
from jaxfeat.types import UserError

SAMPLE = stories.make_stories(11, 700)
PENN = (
    "CC CD DT EX IN JJ JJR MD NN NNP NNS PDT POS PRP PRP$ RB RBR RP TO UH VB VBD VBN VBP VBZ "
    "WDT WP WP$ WRB . , `` ''"
)
CLEAR = (
    "ROOT acl acomp advcl advmod amod attr aux case cc ccomp conj csubj dative det dobj expl intj "
    "mark neg npadvmod nsubj nummod oprd pcomp pobj poss predet prep prt punct relcl xcomp"
)


def words_of(story):
    """The words of a story, as they stand in the text."""
    text, start, end, _, _ = story.tagged
    return [text[i:j] for i, j in zip(start, end)]


def sentences_of(story):
    """Word numbers of each sentence: a point ends it outside of quotation marks, or with them if
    the quotation did not open the sentence."""
    sentence, quoted, late = [], False, False
    for i, pos in enumerate(story.tagged.pos):
        if pos == "``":
            quoted, late = True, bool(sentence)
        sentence.append(i)
        if pos == "''":
            quoted = False
        if (pos == "." and not quoted) or (pos == "''" and late and story.tagged.pos[i - 1] == "."):
            yield sentence
            sentence = []
    assert not sentence


def episode_before(story, offset):
    """The text of an episode up to an offset."""
    return story.tagged.text[:offset].rsplit("\n", 1)[-1]


def equal(one, two):
    """Whether two stories are the same in every field."""
    same = all(np.array_equal(a, b) for a, b in zip(one.tagged, two.tagged))
    return same and one[1:] == two[1:]


def test_determinism():
    """A story depends on (seed, number) alone; other seeds and numbers give other stories."""
    few = stories.make_stories(11, 5, first=3)
    assert all(equal(one, two) for one, two in zip(few, SAMPLE[3:8]))
    assert equal(stories.make_story(11, 699), SAMPLE[699])
    texts = {story.tagged.text for story in SAMPLE}
    texts |= {stories.make_story(seed, 0).tagged.text for seed in (0, 12, 2**40)}
    assert len(texts) == len(SAMPLE) + 3


def test_first_words():
    """The random numbers are NumPy's PCG64, which every version and machine gives alike."""
    text = stories.make_story(0, 0).tagged.text
    assert text.split("\n")[0] == FIRST_PARAGRAPH


def test_refusals():
    """Broken numbers are told by name."""
    for bad in ({"seed": -1}, {"number": -1}, {"number": 0.5}):
        with pytest.raises(UserError, match=next(iter(bad))):
            stories.make_story(**({"seed": 0, "number": 0} | bad))
    with pytest.raises(UserError, match="count"):
        stories.make_stories(0, -1)
    with pytest.raises(UserError, match="needs a tag"):
        story_notation.parse("the dog")
    with pytest.raises(UserError, match="needs a label"):
        story_notation.parse("{dog}")


def test_spans():
    """Spans are words in order; only single spaces and line breaks lie between them."""
    for story in SAMPLE[:200]:
        text, start, end, pos, dep = story.tagged
        assert start.dtype == end.dtype == np.int32
        assert len(start) == len(end) == len(pos) == len(dep)
        assert start[0] == 0 and end[-1] == len(text) and (start < end).all()
        between = [text[i:j] for i, j in zip(end, start[1:])]
        assert set(between) <= {"", " ", "\n"}
        for word, tag in zip(words_of(story), pos):
            kind = r"[.,!?\"]" if tag in (".", ",", "``", "''") else r"[A-Za-z]+|n't|'s"
            assert re.fullmatch(kind, word), (word, tag)
        assert "  " not in text and " ," not in text and " ." not in text
        assert not re.search(r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]", text)


def test_sentences():
    """Each sentence has one ROOT and begins with a capital letter, as each quotation does."""
    for story in SAMPLE:
        words = words_of(story)
        for sentence in sentences_of(story):
            assert [story.tagged.dep[i] for i in sentence].count("ROOT") == 1
            letters = [words[i] for i in sentence if words[i] != '"']
            assert letters[0][0].isupper(), letters
        for i, tag in enumerate(story.tagged.pos):
            assert tag != "``" or words[i + 1][0].isupper()


def test_tags():
    """Only known tags, the ten of a probe often enough, closed classes always alike."""
    pos, dep, tags_of = Counter(), Counter(), defaultdict(set)
    for story in SAMPLE:
        pos.update(story.tagged.pos)
        dep.update(story.tagged.dep)
        for word, tag, label in zip(words_of(story), story.tagged.pos, story.tagged.dep):
            tags_of[word.lower()].add((tag, label))
    assert set(pos) <= set(PENN.split()) and set(dep) <= set(CLEAR.split())
    total = pos.total()
    assert all(pos[tag] >= total / 100 for tag in tagged.POS_TAGS)
    assert all(dep[label] >= total / 100 for label in tagged.DEPENDENCIES)
    for words, tag, label in (
        ("a an the some", "DT", "det"),
        ("and but", "CC", "cc"),
        ("could would might should must can", "MD", "aux"),
        (". , ! ?", None, "punct"),
        ("n't", "RB", "neg"),
        ("of on at with", "IN", "prep"),
    ):
        for word in words.split():
            assert tags_of[word] == {(tag or {"!": ".", "?": "."}.get(word, word), label)}, word
    for word in ("he", "she", "they", "it", "i", "we", "you", "them", "us"):
        assert {tag for tag, _ in tags_of[word]} <= {"PRP"}, word
    assert {tag for tag, _ in tags_of["to"]} == {"TO", "IN"}  # before a verb, before a noun
    names = set(map(str.lower, lexicon.HE_NAMES + lexicon.SHE_NAMES))
    for word, tags in tags_of.items():
        assert (word in names) == ("NNP" in {tag for tag, _ in tags}), word


def test_size():
    """Lengths of stories and episodes, and the number of distinct words."""
    distinct = {word.lower() for story in SAMPLE for word in words_of(story)}
    assert len(distinct) >= 1700
    lengths = [len(story.tagged.pos) for story in SAMPLE]
    assert min(lengths) >= 90 and max(lengths) <= 420 and 200 < np.mean(lengths) < 300
    sizes = []
    for story in SAMPLE:
        breaks = np.array([i for i, c in enumerate(story.tagged.text) if c == "\n"])
        sizes += np.bincount(np.searchsorted(breaks, story.tagged.start))[1:-1].tolist()
    assert np.quantile(sizes, 0.9) <= 57 and max(sizes) <= 68


def test_kinds():
    """A word that a story asks for belongs to one kind only, and to no other role or template."""
    places = tuple(word for words in lexicon.PLACES.values() for word in words)
    kinds = [lexicon.THINGS, places, *(options for options, _ in stories.TOPICS.values())]
    kinds.remove(tuple(sorted(lexicon.THINGS)))
    asked = Counter(word for words in kinds for word in words)
    assert set(asked.values()) == {1}
    templates = [
        sentence
        for of, names in [
            (story_questions, ["PAIRS", "WHERE", "WHAT"]),
            (story_sentences, ["OPENERS", "LAST_OPENERS", "REMAINING", "SENTENCES"]),
        ]
        for name in names
        for line in getattr(of, name)
        for sentence in line
    ]
    templates += story_questions.HAS + story_questions.AT
    for first, again in story_questions.RECALL.values():
        templates += [sentence for line in first + again for sentence in line]
    templates += [phrase for role in story_sentences.ROLES.values() for phrase in role]
    others = {item.text.lower() for t in templates for item in t if not item.slot}
    others |= set(lexicon.COLOURED + lexicon.COUNTED + lexicon.ORDINALS + lexicon.COUNTS)
    others |= {word for unit in lexicon.UNITS for word in unit}
    assert not others & set(asked)
    names = lexicon.HE_NAMES + lexicon.SHE_NAMES
    assert len(set(names)) == len(names)


def test_asks():
    """The answer stands where it should; a recalled word is the only one of its kind so far."""
    kinds = Counter()
    for story in SAMPLE:
        assert [ask.start for ask in story.asks] == sorted(ask.start for ask in story.asks)
        for ask in story.asks:
            kinds[ask.kind] += 1
            assert story.tagged.text.startswith(ask.answer, ask.start)
            assert ask.start in story.tagged.start
            assert ask.answer in ask.options and len(set(ask.options)) == len(ask.options) >= 2
            before = episode_before(story, ask.start)
            offered = set(re.findall(r"\b[a-z]+\b", before)) & set(ask.options)
            assert offered == ({ask.answer} if ask.kind == "recall" else set(ask.options))
    assert set(kinds) == set(story_text.KINDS) and min(kinds.values()) > 0.3 * kinds.total()


def test_two_hop():
    """The answer follows from the facts, stays near them, and no cheap rule finds it."""
    right, distances = defaultdict(list), []
    for story in SAMPLE[:500]:
        for ask in story.asks:
            if ask.kind == "recall":
                continue
            episode = story.tagged.text.count("\n", 0, ask.start)
            facts = [fact for fact in story.facts if fact.episode == episode]
            asked = next(f for f in facts if f.relation == "where")
            owner = next(f for f in facts if f.relation == "has" and f.object == asked.subject)
            place = next(f for f in facts if f.relation == "at" and f.object == asked.object)
            assert owner.subject == place.subject and ask.answer in asked
            first = min(owner.start, place.start)
            start = story.tagged.start
            distances.append(np.sum((start >= first) & (start < ask.start)))
            told = episode_before(story, ask.start)
            spot = {option: re.search(rf"\b{option}\b", told).start() for option in ask.options}
            order = sorted(ask.options, key=spot.get)
            relation = "has" if ask.answer == place.object else "at"
            cues = [f.object for f in facts if f.relation == relation]
            cue = asked.object if ask.answer == asked.subject else asked.subject
            right["first mentioned"].append(ask.answer == order[0])
            right["first option"].append(ask.answer == ask.options[0])
            right["same rank"].append(order.index(ask.answer) == cues.index(cue))
            names = [f.subject for f in facts if f.relation == "at"]
            right["same name first"].append(names[0] == owner.subject)
            last = max(facts[:-1], key=lambda f: f.end)
            right["last name"].append(owner.subject == last.subject)
    assert len(distances) > 500
    assert np.quantile(distances, 0.9) <= 50
    for rule, hits in right.items():
        assert 0.42 < np.mean(hits) < 0.58, rule


def test_order():
    """The opening tells the number of episodes; each opens with its ordinal, and only there."""
    counts = Counter()
    for story in SAMPLE:
        opening, *episodes, ending = story.tagged.text.split("\n")
        counts[len(episodes)] += 1
        told = re.findall(rf"\b({'|'.join(lexicon.COUNTS)})\b", opening + ending, re.IGNORECASE)
        assert {lexicon.COUNTS.index(word.lower()) + 1 for word in told} == {len(episodes)}
        said = [re.findall(rf"\b({'|'.join(lexicon.ORDINALS)})\b", part) for part in episodes]
        assert said == [[ordinal] for ordinal in lexicon.ORDINALS[: len(episodes)]]
        for left, episode in zip(range(len(episodes) - 1, -1, -1), episodes):
            remaining = re.search(r"(?:Now|They still had) (\w+) \w+(?: remained)?\.$", episode)
            assert not remaining or lexicon.COUNTS.index(remaining[1]) + 1 == left
    assert set(counts) == {2, 3, 4, 5, 6}


def test_cast():
    """Only introduced characters act, and pronouns agree with the name."""
    he = set(lexicon.HE_NAMES)
    names = he | set(lexicon.SHE_NAMES)
    for story in SAMPLE:
        opening, _, rest = story.tagged.text.partition("\n")
        cast = set(re.findall(r"(?:named|called|name was) ([A-Z]\w+)", opening))
        assert 2 <= len(cast) <= 4 and cast <= names
        assert set(re.findall("[A-Z][a-z]+", rest)) & names <= cast
        for name, pronoun in re.findall(r"([A-Z][a-z]+) [a-z]+ because (he|she) was", rest):
            assert (pronoun == "he") == (name in he)


FIRST_PARAGRAPH = (
    'In a terrible world lived a robot named Zora, a wolf called Amelia and a small '
    'uncle whose name was Samuel. "We have two evenings," declared Zora.'
)
