"""How is a sentence written down so that every word of it carries its exact tags?

A template is a line of items: `went/VBD/*` is a word with its tag and dependency label, `the` a
word whose tags are always the same (`CLOSED`), `{adj}` or `{place}/pobj` a slot that a word or
another template fills (its label here, or as in `SLOT_LABELS`). The label `*` marks the head of a
template: it gets the label of the slot that the template fills, and ROOT in a sentence. `|` parts
sentences.
"""

from typing import NamedTuple

from jaxfeat.types import UserError


class Item(NamedTuple):
    """A word of a template, or a slot (then `text` names it and `pos` is empty)."""

    text: str
    pos: str
    dep: str
    slot: bool = False


Template = tuple[Item, ...]

CLOSED = {
    word: (pos, dep)
    for pos, dep, words in (
        ("DT", "det", "the a every some this that no"),
        ("CC", "cc", "and but or"),
        (",", "punct", ","),
        (".", "punct", ". ? !"),
        ("``", "punct", "``"),
        ("''", "punct", "''"),
        ("RB", "neg", "not n't"),
        ("TO", "aux", "to"),
        ("VBD", "aux", "did"),
        ("MD", "aux", "could would might should must can"),
        ("PRP", "nsubj", "I you he she it we they"),
        ("PRP", "dobj", "them us"),
        ("PRP$", "poss", "my your our their its"),
        ("IN", "prep", "of in on with for at from without into until after before"),
        ("IN", "mark", "because while if"),
        ("WRB", "advmod", "when where why how"),
        ("RB", "advmod", "so too now there here once later"),
        ("EX", "expl", "there"),
    )
    for word in words.split()
}
SLOT_LABELS = {
    name: dep
    for dep, names in (
        ("*", "see craft tell gather play open wear help move act wish shine speak clause"),
        ("nsubj", "a b who subj asker he nature"),
        ("dobj", "sight crafted tale heap game lid cloth gift thing food animal him"),
        ("pobj", "place land event neighbour virtue riches meal"),
        ("amod", "adj fine trait weather colour ord"),
        ("advmod", "adv skyadv time degree frequency"),
        ("prep", "path loc uprep"),
        ("acomp", "mood feeling"),
        ("nummod", "count number left"),
        ("attr", "sound"),
        ("poss", "his"),
    )
    for name in names.split()
}


def parse(text: str) -> tuple[Template, ...]:
    """The sentences of a template.

    Args:
        text: as in the docstring of the module.

    Returns:
        One tuple of items for each part between `|`.

    Raises:
        UserError: a bare word that is not in `CLOSED`, or a slot without a label.

    >>> [item[:3] for item in parse("{a} went/VBD/* .")[0]]
    [('a', '', 'nsubj'), ('went', 'VBD', '*'), ('.', '.', 'punct')]
    """
    sentences: list[list[Item]] = [[]]
    for token in text.split():
        if token == "|":
            sentences.append([])
        elif token.startswith("{"):
            name, _, dep = token.replace("}", "").lstrip("{").partition("/")
            dep = dep or SLOT_LABELS.get(name.removesuffix("_vb").rstrip("12"), "")
            if not dep:
                raise UserError(f"text: slot {token} needs a label, as in {{{name}}}/dobj")
            sentences[-1].append(Item(name, "", dep, True))
        elif "/" in token:
            text, pos, dep = token.split("/")
            sentences[-1].append(Item(text, pos, dep))
        elif tags := CLOSED.get(token) or CLOSED.get(token.lower()):
            sentences[-1].append(Item(token, *tags))
        else:
            raise UserError(f"text: {token!r} needs a tag and a label, as in {token}/NN/dobj")
    return tuple(map(tuple, sentences))


def word(text: str, pos: str) -> Template:
    """A filling of one word, which gets the label of its slot."""
    return (Item(text, pos, "*"),)


def lines(text: str) -> tuple[tuple[Template, ...], ...]:
    """The parsed templates of a block, one a line; an indented line goes on with the last."""
    return tuple(parse(line) for line in text.replace("\n    ", " ").strip().splitlines())


def phrases(text: str) -> tuple[Template, ...]:
    """The parsed one-sentence templates of a block, one a line."""
    return tuple(parse(line)[0] for line in text.strip().splitlines())
