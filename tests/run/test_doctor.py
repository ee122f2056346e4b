"""Does the doctor tell what is here and what an experiment lacks, without importing it?"""

import json

import pytest

from jaxfeat.run import doctor


def test_experiments_are_read_not_imported(tmp_path):
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "bad.py").write_text("def PRESETS = ")
    (folder / "part.py").write_text("x = 1")  # no experiment
    (folder / "big.py").write_text(
        '"""How big is it?\n\nMore."""\nPRESETS = {}\nimport os\n'
        "import json.decoder\nimport numpy as np\n"
        "from experiments import small\nfrom jaxfeat.io import parquet\nraise SystemExit(3)\n"
    )
    (folder / "small.py").write_text("PRESETS = {}\ndef f():\n    import no_such_package.sub\n")
    found = {entry["name"]: entry for entry in doctor.list_experiments([tmp_path])}
    assert list(found) == ["bad", "big", "small"]
    assert found["big"] == {
        "name": "big",
        "question": "How big is it?",
        "missing": ["no_such_package"],
    }
    assert found["bad"]["question"].startswith("cannot be read")


def test_both_outputs(capsys, monkeypatch):
    doctor.main([])
    text = capsys.readouterr().out
    assert "jaxlib" in text and "platform" in text and "optional" in text
    doctor.main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["devices"]["found"] and found["versions"]["jax"]
    monkeypatch.setattr(doctor, "_devices", lambda: {"found": [], "error": "no backend"})
    doctor.main([])
    assert "cannot start one: no backend" in capsys.readouterr().out


def test_an_unknown_option(capsys):
    with pytest.raises(SystemExit) as stop:
        doctor.main(["--jsn"])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
