"""What does a parsed config.json say, in the keys of any time?

Hugging Face's keys changed with transformers 5: one `rope_parameters` in the place of `rope_theta`,
`rope_scaling` and others, `layer_types` spelled out. Checkpoints have either. null counts as absent
unless a family says otherwise.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxfeat.nn.rotary import KINDS, Rope, rotary_frequencies
from jaxfeat.types import Tree, UserError

Raw = Mapping[str, Any]
NEEDED = object()
EVERYWHERE = 2**30  # the window of a block that sees all
SLIDING, FULL = "sliding_attention", "full_attention"


def take(raw: Raw, *names: str, default: Any = NEEDED) -> Any:
    """The first of the keys that is there and not null, else the default.

    Raises:
        UserError: none is there and there is no default.

    >>> take({"a": None, "b": 2}, "a", "b")
    2
    """
    for name in names:
        if raw.get(name) is not None:
            return raw[name]
    if default is NEEDED:
        raise UserError(f"config.json: {names[0]} is missing")
    return default


def refuse_other(raw: Raw, **supported: Any) -> None:
    """Refuse options whose value is neither absent, null nor the one that is supported.

    Raises:
        UserError: the option, its value and the valid one.
    """
    for name, value in {"quantization_config": None, **supported}.items():
        if raw.get(name) is not None and raw[name] != value:
            valid = "absent" if value is None else repr(value)
            raise UserError(f"config.json: {name} {raw[name]!r} is not supported; valid: {valid}")


def rope_of(
    raw: Raw,
    layer_type: str | None = None,
    *,
    theta: str | tuple[str, ...] = "rope_theta",
    default: float = 10000.0,
    scaled: bool = True,
) -> Rope:
    """The rotary angles, of one kind of blocks where they differ.

    Args:
        layer_type: which entry of a nested `rope_parameters`.
        theta: the old keys of the base; `default` where no key is there.
        scaled: whether the old `rope_scaling` acts on these blocks.

    Raises:
        UserError: a kind of scaling that is not implemented, or one without its numbers.
    """
    new = raw.get("rope_parameters") or {}
    if any(isinstance(value, Mapping) for value in new.values()):
        new = new.get(layer_type) or {}
    scaling = new or (raw.get("rope_scaling") if scaled else None) or {}
    kind = take(scaling, "rope_type", "type", default="default")
    if kind not in KINDS:
        raise UserError(f"config.json: rope type {kind!r} is unknown; valid: {', '.join(KINDS)}")
    old = (theta,) if isinstance(theta, str) else theta
    base = float(take(new, "rope_theta", default=take(raw, *old, default=default)))
    if kind == "default":
        return Rope(base)
    if kind == "linear":
        return Rope(base, kind, float(take(scaling, "factor")))
    names = ("factor", "low_freq_factor", "high_freq_factor")
    factor, low, high = (float(take(scaling, name)) for name in names)
    original = take({**raw, **scaling}, "original_max_position_embeddings")
    return Rope(base, kind, factor, low, high, int(original))


def slides_of(raw: Raw, layers: int, slides: Callable[[int], bool]) -> tuple[bool, ...]:
    """Which blocks see a window only: as `layer_types` says, else as the rule for 0-based blocks.

    Raises:
        UserError: an unknown type, or another number of them than blocks.
    """
    types = raw.get("layer_types")
    if types is None:
        return tuple(slides(b) for b in range(layers))
    unknown = [name for name in types if name not in (SLIDING, FULL)]
    if unknown:
        told = f"layer type {unknown[0]!r} is unknown; valid: {SLIDING}, {FULL}"
        raise UserError(f"config.json: {told}")
    if len(types) != layers:
        raise UserError(f"config.json: layer_types names {len(types)} blocks of {layers}")
    return tuple(name == SLIDING for name in types)


def same_consts(layers: int, size: int, rope: Rope) -> Tree:
    """Constants of N blocks that turn heads alike: `frequency` `[N, R/2]`, R = size."""
    return {"frequency": np.tile(rotary_frequencies(size, rope), (layers, 1))}


def sliding_consts(slides: tuple[bool, ...], size: int, window: int, near: Rope, far: Rope) -> Tree:
    """Constants of blocks of two kinds: `frequency` `[N, R/2]` and `window` `[N]`.

    Args:
        slides: `[N]`, which blocks see `window` and turn by `near`; others see all, by `far`.
    """
    which = np.array(slides)
    pair = rotary_frequencies(size, near), rotary_frequencies(size, far)
    windows = np.where(which, window, EVERYWHERE).astype(np.int32)
    return {"frequency": np.where(which[:, None], *pair), "window": windows}
