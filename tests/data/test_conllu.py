"""Do the words of CoNLL-U files stand where their forms are in the text, and are faults named?"""

import builtins
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from jaxfeat.data.conllu import CLEARNLP_OF_UD, read_conllu
from jaxfeat.data.tagged import DEPENDENCIES
from jaxfeat.types import UserError

pytest.importorskip("conllu")
UD = Path(__file__).parents[3] / "shared/data/ud"


def row(number, form, xpos="_", deprel="_", misc="_"):
    """One line of ten columns."""
    return "\t".join([str(number), form, "_", "_", xpos, "_", "0", deprel, "_", misc])


def file_of(path, *rows, ends="\n"):
    """A file with these lines and an empty line at its end."""
    path.write_bytes((ends.join(rows) + 2 * ends).encode())
    return path


def words(tagged):
    """The characters of each word."""
    return [tagged.text[s:e] for s, e in zip(tagged.start, tagged.end)]


DOG = (
    "# newdoc id = dog",
    "# newpar",
    "# sent_id = 1",
    "# text = Don't  run, dog!",
    row("1-2", "Don't"),
    row(1, "Do", "VB", "aux"),
    row(2, "n't", "RB", "advmod"),
    row(3, "run", "VB", "root", "SpaceAfter=No"),
    row("3.1", "you", "PRP", "nsubj"),
    row(4, ",", ",", "punct"),
    "# a comment between words",
    row(5, "dog", "NN", "vocative", "SpaceAfter=No"),
    row(6, "!", ".", "punct"),
    "",
)
CAT = (
    row(1, "The", "DT", "det"),
    row(2, "cat", "NN", "nmod:poss", "SpaceAfter=No"),
    row(3, "'s", "POS", "case"),
    row(4, "tail", "NN", "root", "Gloss=x|SpaceAfter=No"),
    row(5, ".", ".", "punct", "SpaceAfter=No"),
    "",
)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_words_of_a_sentence_with_a_text(tmp_path, ends):
    (dog,) = read_conllu(file_of(tmp_path / "a b.conllu", *DOG, ends=ends))
    assert dog.text == "Don't  run, dog!"
    assert words(dog) == ["Do", "n't", "run", ",", "dog", "!"]
    assert dog.pos == ("VB", "RB", "VB", ",", "NN", ".")
    assert dog.dep == ("aux", "advmod", "ROOT", "punct", "vocative", "punct")
    assert dog.start.dtype == dog.end.dtype == np.int32


def test_a_text_is_made_from_the_forms_where_it_is_absent_or_another(tmp_path):
    (cat,) = read_conllu(file_of(tmp_path / "a", *CAT))
    assert cat.text == "The cat's tail."
    assert words(cat) == ["The", "cat", "'s", "tail", "."]
    assert cat.dep == ("det", "poss", "case", "ROOT", "punct")
    (other,) = read_conllu(file_of(tmp_path / "b", "# text = The cats tail, then.", *CAT))
    assert other.text == cat.text
    (same,) = read_conllu(file_of(tmp_path / "c", "# text = The cat's  tail.", *CAT))
    assert same.text == "The cat's  tail." and words(same) == words(cat)


def test_words_that_do_not_make_up_their_token_leave_no_overlap(tmp_path):
    rows = [
        row("1-3", "Gonna"),
        row(1, "Go", "VBG"),
        row(2, "ing", "VBG"),
        row(3, "to", "TO"),
        row(4, "x", "NN"),
    ]
    for text in ([], ["# text = Gonna x"]):
        (gonna,) = read_conllu(file_of(tmp_path / "a", *text, *rows))
        assert gonna.text == "Gonna x"
        assert gonna.start.tolist() == [0, 5, 5, 6]
        assert gonna.end.tolist() == [5, 5, 5, 7]
    upper = row(1, "can"), row(2, "not")
    (upper,) = read_conllu(file_of(tmp_path / "b", row("1-2", "CANNOT"), *upper))
    assert words(upper) == ["CAN", "NOT"]


def test_documents_paragraphs_and_sentences(tmp_path):
    path = file_of(tmp_path / "a", *CAT, *DOG, *CAT, "# newpar id = p2", *CAT, "# newdoc", "", *CAT)
    first, second, third = read_conllu(path)
    assert first.text == third.text == "The cat's tail."
    assert second.text == "Don't  run, dog! The cat's tail.\n\nThe cat's tail."
    assert words(second)[-5:] == words(second)[-10:-5] == words(first)
    sentences = read_conllu(path, by="sentence")
    assert [len(s.pos) for s in sentences] == [5, 6, 5, 5, 5]
    assert all(s.start[0] == 0 for s in sentences)


def test_labels_are_renamed_by_one_table_or_kept(tmp_path):
    rows = [
        row(1, "to", "TO", "mark"),
        row(2, "that", "IN", "mark"),
        row(3, "in", "IN", "case"),
        row(4, "x", "_", "obl"),
        row(5, "was", "VBD", "cop"),
        row(6, "y", "NN", "_"),
    ]
    path = file_of(tmp_path / "a", *rows)
    assert read_conllu(path)[0].dep == ("aux", "mark", "prep", "pobj", "cop", "")
    kept = read_conllu(path, labels="ud")[0]
    assert kept.dep == ("mark", "mark", "case", "obl", "cop", "")
    assert kept.pos == ("TO", "IN", "IN", "", "VBD", "NN")
    assert set(DEPENDENCIES) <= set(CLEARNLP_OF_UD.values())


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "a.conllu holds no word"),
        (b"\n# newdoc\n\n", "a.conllu holds no word"),
        (b"\x00\x01PAR1\n", "a.conllu is a binary file"),
        (b"# x\n1\tcaf\xe9\n", "a.conllu, line 2: no UTF-8"),
        (b"\xef\xbb\xbf# x\n\n\xff\n", "a.conllu, line 3: no UTF-8"),
        (b"# x\n1\tdog\t_\t_\n", "a.conllu, line 2: 4 columns, CoNLL-U has 10"),
        (b"once upon a time\n", "a.conllu, line 1: 1 columns"),
        (("x\ta" + 8 * "\t_").encode(), "a.conllu, line 1: 'x.*begins with no id"),
        ((row("2-1", "a")).encode(), "a.conllu, sentence 1: .*'2-1' is not a valid ID"),
        (f"{row(1, 'a')}\n{row(3, 'b')}".encode(), "a.conllu, sentence 1: the ids of its words"),
        (f"{row(1, 'a')}\n{row('1-2', 'b')}".encode(), "sentence 1: the ids of its words"),
        (b"# global.columns = ID FORM\n", "a.conllu, line 1: columns of its own"),
    ],
)
def test_a_bad_file_is_named(tmp_path, data, told):
    (tmp_path / "a.conllu").write_bytes(data)
    with pytest.raises(UserError, match=told) as error:
        read_conllu(tmp_path / "a.conllu")
    assert str(error.value).startswith(str(tmp_path))


def test_an_absent_file_and_unknown_options_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none.conllu cannot be read \(No such file"):
        read_conllu(tmp_path / "none.conllu")
    with pytest.raises(UserError, match="by: 'story' is none of document, sentence"):
        read_conllu(tmp_path, by="story")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="labels: 'x' is none of clearnlp, ud"):
        read_conllu(tmp_path, labels="x")  # type: ignore[arg-type]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    known = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "conllu":
            raise ImportError(name)
        return known(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install conllu$"):
        read_conllu(file_of(tmp_path / "a", *CAT))


def gold(path):
    """Surface form, tag and label of every word by another way: lines and tabs alone."""
    rows, slices = [], 0
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) == 10 and "." not in fields[0]:
            if "-" in fields[0]:
                first, last = fields[0].split("-")
                rest, slices = fields[1], int(last) - int(first) + 1
                continue
            form = fields[1]
            if slices:
                form, rest, slices = rest[: len(form)], rest[len(form) :], slices - 1
                assert form.lower() == fields[1].lower() and (slices or not rest)
            rows.append((form, fields[4], fields[7]))
    return rows


@pytest.mark.skipif(not UD.is_dir(), reason=f"no treebank at {UD}")
@pytest.mark.parametrize(
    ("part", "sentences", "total"), [("dev", 2001, 25147), ("test", 2077, 25094)]
)
def test_a_treebank_loads_whole(part, sentences, total):
    path = UD / f"en_ewt-ud-{part}.conllu"
    wanted = gold(path)
    found = read_conllu(path, by="sentence", labels="ud")
    assert (len(found), len(wanted)) == (sentences, total)
    assert [word for s in found for word in words(s)] == [form for form, _, _ in wanted]
    assert Counter(tag for s in found for tag in s.pos) == Counter(tag for _, tag, _ in wanted)
    assert Counter(x for s in found for x in s.dep) == Counter(label for _, _, label in wanted)
    documents = read_conllu(path)
    assert len(documents) == path.read_text(encoding="utf-8").count("# newdoc id")
    assert [word for d in documents for word in words(d)] == [form for form, _, _ in wanted]
    for tagged in documents:
        assert (tagged.start[1:] >= tagged.end[:-1]).all() and (tagged.end > tagged.start).all()
