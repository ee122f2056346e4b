"""How is an experiment started: options, device, result folder, messages and exit codes?

Exit codes: 0 done, 2 an input that the user can mend (one or two lines say which), 130 interrupted.
"""

import contextlib
import dataclasses
import difflib
import io
import json
import math
import os
import re
import shlex
import signal
import sys
import threading
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import jax

from jaxfeat.run import folder as folders
from jaxfeat.run.progress import clock
from jaxfeat.run.provenance import hide_home
from jaxfeat.types import UserError

DEVICES = ("auto", "cpu", "gpu", "tpu")
OPTIONS = ("preset", "out", "resume", "overwrite", "device", "deterministic")
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
WRONG_SUMS = "0.10.2"  # of jaxlib on a CPU, unless the flag NO_YNN is set
NO_YNN = "--xla_cpu_experimental_ynn_fusion_type="


def main(
    config_class: type,
    presets: Mapping[str, Any],
    run: Callable[[Any, Path], Mapping[str, Any] | None],
    *,
    name: str,
    doc: str | None,
    check: Callable[[Any], None] | None = None,
    argv: Sequence[str] | None = None,
) -> Mapping[str, Any] | None:
    """The command line of an experiment: parse, check, open the result folder, run, report.

    Args:
        config_class: a frozen dataclass; each field is an option, nested ones by a dot. Its
            field docstrings or comments are the help: name the unit there.
        presets: name -> config; `--preset` chooses, default "quick" (else the first).
        run: `(config, workdir) -> dict`; it finds its checkpoints in `workdir` after `--resume`.
        name: of the experiment; results go to `runs/NAME-PRESET` by default.
        doc: the experiment's docstring, shown by `--help`.
        check: raises `UserError` for settings that cannot work, before any file is touched.
        argv: the options; by default those of the process.

    Returns:
        What `run` returned.

    Raises:
        SystemExit: 0 after `--help`, 2 after a `UserError`, 130 after an interruption.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    started = time.perf_counter()
    workdir, made, resumed = None, [], "--resume" in given
    try:
        options, config = parse(config_class, presets, given, name=name, doc=doc)
        if check is not None:
            check(config)
        device = use_device(options["device"], deterministic=options["deterministic"])
        settings = config_dict(config)
        out = options["out"]
        made = [p for p in Path(os.path.expanduser(out)).absolute().parents if not p.exists()]
        flags = {key: options[key] for key in ("resume", "overwrite")}
        workdir = folders.open_folder(out, config=settings, keep_old=True, **flags)
        print(f"{name}: preset {options['preset']}, {device}, results in {out}")
        print(_settings_text(settings), flush=True)
        with _terminable():
            result = run(config, workdir)
    except UserError as error:
        _take_back(workdir, made, resumed=resumed)
        _fail(str(error))
    except KeyboardInterrupt:
        kept = workdir and not _take_back(workdir, made, resumed=resumed)
        words = [w for w in given if not kept or w not in ("--resume", "--overwrite")]
        again = shlex.join([*_invocation(), *words, *(["--resume"] if kept else [])])
        verb = "continue" if kept else "nothing was written; start again"
        print(f"\ninterrupted: {verb} with: {again}", file=sys.stderr)
        raise SystemExit(130) from None
    except MemoryError as error:
        _take_back(workdir, made, resumed=resumed)
        _fail(f"out of memory: {error}")
    except jax.errors.JaxRuntimeError as error:
        _take_back(workdir, made, resumed=resumed)
        first = str(error).strip().splitlines()[0]
        if "RESOURCE_EXHAUSTED" not in first and "memory" not in first.lower():
            raise
        _fail(f"out of memory ({first[:120]}): choose smaller sizes, such as --batch or --width")
    except BaseException:
        _take_back(workdir, made, resumed=resumed)
        raise
    folders.forget_old(workdir)
    seconds = time.perf_counter() - started
    folders.add_seconds(workdir, seconds)
    report = (workdir / "report.html").exists()
    print(f"report: {Path(out) / 'report.html'}" if report else f"results: {out}")
    print(f"time: {clock(seconds)}")
    return result


def benchmark(
    config_class: type,
    presets: Mapping[str, Any],
    run: Callable[[str, Any], Mapping[str, Any]],
    *,
    name: str,
    doc: str | None,
    argv: Sequence[str] | None = None,
) -> Mapping[str, Any]:
    """The command line of a benchmark: options as in `main`, no folder, one JSON line at the end.

    Args:
        run: `(preset, config) -> dict`, which prints its table itself.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        options, config = parse(config_class, presets, given, name=name, doc=doc, folder=False)
        device = use_device(options["device"], deterministic=options["deterministic"])
        print(f"{name}: preset {options['preset']}, {device}")
        print(_settings_text(config_dict(config)), flush=True)
        result = run(options["preset"], config)
    except UserError as error:
        _fail(str(error))
    print(json.dumps(folders.plain(result)[0], allow_nan=False))
    return result


def parse(
    config_class: type,
    presets: Mapping[str, Any],
    argv: Sequence[str],
    *,
    name: str,
    doc: str | None,
    folder: bool = True,
) -> tuple[dict[str, Any], Any]:
    """The options of the command line itself, and the config: the preset with its overrides.

    Args:
        folder: whether there is a result folder (`--out`, `--resume`, `--overwrite`).

    Raises:
        UserError: an unknown option or preset (with the nearest one), or a bad value.
        SystemExit: 0, after `--help` was printed.
    """
    import tyro

    if clash := set(OPTIONS) & {f.name for f in dataclasses.fields(config_class)}:
        raise TypeError(f"{config_class.__name__} has the reserved fields {sorted(clash)}")
    preset = _chosen(argv, "preset") or ("quick" if "quick" in presets else next(iter(presets)))
    if preset not in presets:
        raise UserError(
            f"--preset: unknown preset {preset!r}{near(preset, presets)}; "
            f"presets are {', '.join(presets)}"
        )
    flag = tyro.conf.FlagCreatePairsOff
    arg = tyro.conf.arg
    choice = arg(metavar="{" + ",".join(presets) + "}", help="the settings to start from")
    fields = [
        ("preset", Annotated[str, choice], preset),
        ("device", Annotated[typing.Literal[DEVICES], arg(help="where to compute")], "auto"),
        ("deterministic", flag[Annotated[bool, arg(help="bit-identical GPU kernels")]], False),
    ]
    if folder:
        fields += [
            ("out", Annotated[str, arg(metavar="PATH", help="result folder")],
             f"runs/{name}-{preset}"),
            ("resume", flag[Annotated[bool, arg(help="continue the run in that folder")]], False),
            ("overwrite", flag[Annotated[bool, arg(help="replace the run in it")]], False),
        ]  # fmt: skip
    options = dataclasses.make_dataclass("Options", fields, frozen=True)
    bare = tyro.conf.arg(name="")
    command = dataclasses.make_dataclass(
        "Command",
        [("options", Annotated[options, bare]), ("config", Annotated[config_class, bare])],
    )
    default = command(options(), presets[preset])
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            done = tyro.cli(
                command, args=list(argv), default=default, prog=name, description=doc or ""
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_plain_error(errors.getvalue(), argv, config_class)) from None
    return dataclasses.asdict(done.options), done.config


def use_device(device: str, *, deterministic: bool = False) -> str:
    """Start JAX on the wanted kind of device and name what is there, such as "1 cpu device (cpu)".

    Args:
        device: one of `DEVICES`; "auto" takes what JAX prefers.
        deterministic: ask XLA for deterministic GPU kernels; acts only before the backend starts.

    Raises:
        UserError: there is no such device; the message names what there is.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if deterministic and DETERMINISTIC not in flags.split():
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        devices = jax.devices()
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise UserError(f"--device {device}: JAX cannot start a device: {first}") from None
    kind, count = jax.default_backend(), len(devices)
    found = f"{count} {kind} device{'s' if count > 1 else ''} ({devices[0].device_kind})"
    if kind == "cpu" and version("jaxlib") == WRONG_SUMS and NO_YNN not in flags.split():
        raise UserError(
            f"jaxlib {WRONG_SUMS} sums wrongly on CPUs (github.com/jax-ml/jax/issues/39103)\n"
            f'install another: pip install "jax!={WRONG_SUMS}"'
        )
    if device not in ("auto", kind):
        raise UserError(
            f"--device {device}: JAX sees no {device.upper()} here, only {found}; "
            "`python -m jaxfeat.run.doctor` lists what is installed"
        )
    return found


def config_dict(config: Any) -> dict[str, Any]:
    """A config as a dict for JSON: infinities as text, home folders as `~`.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     clip: float = float("inf")
    ...     sizes: tuple[int, ...] = (1, 2)
    >>> config_dict(Config())
    {'clip': 'inf', 'sizes': [1, 2]}
    """

    def tidy(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: tidy(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {key: tidy(item) for key, item in value.items()}
        if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
            return [tidy(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, str | Path):
            return hide_home(str(value))
        return value

    return folders.plain(tidy(config))[0]


def near(word: str, known: Any) -> str:
    """A question that names the nearest known word; empty where none is near.

    >>> near("--dtpye", ["--dtype", "--cache"])
    '; did you mean --dtype?'
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _plain_error(box: str, argv: Sequence[str], config_class: type) -> str:
    """tyro's boxed message as one line that names the option and what it takes."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip(" │|╭╮╰╯+") for line in box.splitlines()]
    titled = next((i for i, line in enumerate(lines) if line.endswith(("──", "--"))), -1) + 1
    ends = (i for i in range(titled, len(lines)) if re.fullmatch("[─-]{4,}", lines[i]))
    ruled = next(ends, len(lines))
    text = " ".join(line for line in lines[titled:ruled] if line)
    if text.startswith("Unrecognized"):
        known = [*(f"--{o}" for o in OPTIONS), *_option_names(config_class)]
        names = [w.split("=")[0] for w in argv if w.startswith("--")]
        strange = next((n for n in names if n.replace("_", "-") not in known), None)
        nested = [n for n in known if strange and n.endswith("." + strange.removeprefix("--"))]
        if nested:
            return f"unknown option {strange}; did you mean {' or '.join(nested)}?"
        if strange:
            return f"unknown option {strange}{near(strange, known)}; --help lists all options"
        word = text.split(":", 1)[-1].split(",")[0].strip()
        if word.lower() in ("true", "false"):
            return f"unexpected argument {word!r}: a switch takes no value, --NAME or --no-NAME"
        return f"unexpected argument {word!r}: each value follows its --option"
    if found := re.search(r"Missing value for argument '([^']+)'", text):
        return f"{found[1].split('/')[0]}: a value is missing; --help lists what it takes"
    if found := re.search(r"invalid choice (.+) for argument '([^']+)'. Expected.*\((.*)\)", text):
        valid = ", ".join(w.strip(" '") for w in found[3].split(",") if w.strip(" '"))
        return f"{found[2]}: {found[1]} is not a valid choice; choose from {valid}"
    if found := re.search(r"Error parsing ([^:]+): (.*)", text):
        option, reason = found[1], found[2]
        if option.startswith("config"):  # a nested setting that refuses its own values
            option, _, told = reason.partition(":")
            option, reason = f"--{found[1].partition('.')[2]}.{option}".replace("_", "-"), told
            return f"{option}: {reason.strip()}"[:300]
        if number := re.search(r"invalid literal for int\(\) with base 10: (.*)", reason):
            reason = f"{number[1]} is not a whole number"
        if number := re.search(r"could not convert string to float: (.*)", reason):
            reason = f"{number[1]} is not a number"
        if values := re.search(r"Could not find valid parse for arguments: (.*)", reason):
            reason = f"{values[1]} cannot be read"
        takes = next((w for w in lines[ruled:] if w.startswith(f"{option} ")), "")
        return f"{option}: {reason}"[:300] + takes.replace(option, "; it takes", 1)
    return (text or "the options could not be read; see --help")[:300]


def _option_names(config_class: type, before: str = "") -> list[str]:
    """`--name` of every field, nested ones by a dot, switches also as `--no-name`."""
    names = []
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        kind, name = hints[field.name], field.name.replace("_", "-")
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            names += _option_names(kind, f"{before}{name}.")
        else:
            names.append(f"--{before}{name}")
            names += [f"--{before}no-{name}"] if kind is bool else []
    return names


def _chosen(argv: Sequence[str], option: str) -> str | None:
    """The last value given to an option, before anything is parsed."""
    value = None
    for word, after in zip(argv, [*argv[1:], ""]):
        if word == f"--{option}" and after and not after.startswith("--"):
            value = after
        elif word.startswith(f"--{option}="):
            value = word.split("=", 1)[1]
    return value


def _take_back(workdir: Path | None, made: Sequence[Path], *, resumed: bool) -> bool:
    """Undo a folder in which nothing was written yet; tells whether."""
    if workdir is None or resumed:
        return False
    undone = folders.undo_open(workdir)
    for parent in made if undone else ():
        with contextlib.suppress(OSError):
            parent.rmdir()
    return undone


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: with the words that say how to go on."""

    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(message: str) -> NoReturn:
    """Print the message in at most two lines and leave with exit code 2."""
    first, *rest = [line.strip() for line in message.splitlines() if line.strip()] or ["failed"]
    print(f"error: {first}" + (f"\n  {' '.join(rest)}" if rest else ""), file=sys.stderr)
    raise SystemExit(2) from None


def _invocation() -> list[str]:
    """How this process was started, without its options."""
    words = sys.orig_argv[1:]
    return ["python", *words[: len(words) - len(sys.argv) + 1]]


def _settings_text(settings: Mapping[str, Any], before: str = "") -> str:
    """The settings, one a line, nested ones by a dot."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            lines.append(_settings_text(value, f"{before}{key}."))
        else:
            lines.append(f"  {before}{key} = {value}")
    return "\n".join(lines)
