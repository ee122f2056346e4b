"""How do a model's files come from the Hugging Face hub, and what is said where they do not?

Only configs, tokenizers and safetensors are fetched: no code, no pickle. `huggingface_hub` is
imported on first use; it keeps files in its own cache and takes its own settings (HF_HOME,
HF_TOKEN, HF_HUB_OFFLINE).
"""

import re
from pathlib import Path

from jaxfeat.types import UserError

FILES = ["*.json", "model*.safetensors", "merges.txt"]
NOT = ["*/*"]  # other formats lie in folders
NAME = re.compile(r"[\w.-]+/[\w.-]+")
INSTALL = "pip install huggingface_hub"


def from_hub(name: str, revision: str | None = None) -> tuple[Path, str]:
    """The folder of a model's files, fetched where they are not here yet, and the commit.

    Args:
        name: `owner/model`. revision: a branch, tag or commit; by default the main branch.

    Raises:
        UserError: no such model or revision, one that asks for consent first, or no network.
    """
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise UserError(f"{name}: the hub needs the package huggingface_hub ({INSTALL})") from None
    at = f"https://huggingface.co/{name}"
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=FILES, ignore_patterns=NOT
        )
    except errors.GatedRepoError:
        raise UserError(
            f"{name} is gated: agree to its terms at {at},\n"
            "then log in with `hf auth login` or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"revision: the hub's {name} has no revision {revision!r}") from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"no folder {name} here and no model {name} on the hub (a private one needs a log-in)"
        ) from None
    except errors.HFValidationError as error:
        raise UserError(f"{name}: no name of the hub ({str(error).splitlines()[0][:80]})") from None
    except Exception as error:  # its transport's errors vary between versions
        if not _is_transport(error):
            raise
        raise UserError(
            f"{name}: no folder of this name here, and the hub cannot be reached "
            f"({type(error).__name__});\na folder on this machine works without the network"
        ) from None
    return Path(folder), Path(folder).name


def _is_transport(error: Exception) -> bool:
    """Whether an error is the hub's, its HTTP library's or the system's."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in (
        "huggingface_hub", "httpx", "httpcore", "requests", "urllib3",
    )  # fmt: skip
