"""Parsers shared by the commands of `python -m engine`."""

from __future__ import annotations

import errno
import math
import os
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.core.control import STOPPED
from engine.core.files import check_writable
from engine.core.tables import update_section
from engine.core.variables import only_torch_kernels

OUT_OF_MEMORY = (
    "the device ran out of memory; give shorter prompts or answers, a smaller batch, a smaller "
    "number format or another device"
)


FULL = (errno.ENOSPC, errno.EDQUOT)  # no room on the disk, or no more for this user


@contextmanager
def without_traceback() -> Iterator[None]:
    """Let a command exit with STOPPED after Control-C, and with an error if memory or disk is full.

    It exits with 1 if the reader of its output ends first, as `head` does.
    """
    try:
        try:
            yield
        except SystemExit as ended:
            if not isinstance(ended.code, str):  # an error, which is told first
                _flush_output()
            raise
        _flush_output()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(STOPPED) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
    except Exception as error:
        if not _ran_out_of_memory(error) and not _is_output_full(error):
            raise
        raise failure(error, Namespace()) from None
    finally:
        try:
            _flush_output()
        except OSError:  # what is left goes nowhere, or the interpreter's own flush would fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush_output() -> None:
    if sys.stdout is not None:  # it is if it was closed before the command began
        sys.stdout.flush()


def _ran_out_of_memory(error: Exception) -> bool:
    """Whether a GPU or this machine had no memory left."""
    if not isinstance(error, RuntimeError | MemoryError):
        return False
    from engine.core.device import is_out_of_memory  # loads torch, as most commands have

    return is_out_of_memory(error)


def _is_output_full(error: Exception) -> bool:
    """Whether standard output, or a file that was open before, has no room left."""
    return isinstance(error, OSError) and error.errno in FULL and error.filename is None


class HelpFormatter(RawDescriptionHelpFormatter):
    """Prints the description unchanged, and after the help of an option its default.

    A default that is None, a flag's or empty is left out, and one that the help itself names.
    """

    def _get_help_string(self, action: Action) -> str | None:
        text, default = action.help, action.default
        if not text or "default" in text or default is SUPPRESS or isinstance(default, bool | None):
            return text
        return with_default(
            text, " ".join(map(str, default if isinstance(default, list | tuple) else [default]))
        )


def with_default(text: str, default: str) -> str:
    """The help of an option, a text as argparse takes it, followed by its default if not empty."""
    return f"{text} (default: {default.replace('%', '%%')})" if default else text


class CommandParser(ArgumentParser):
    """A parser whose `--help` shows defaults, and that refuses an empty path (the current folder).

    With `alone`, it ends the command if a launcher started several processes, each of which would
    do the whole work. The parsers of its sub-commands are of this class.
    """

    def __init__(self, *, alone: bool = False, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(**options)
        self.register("type", Path, _path)
        self._alone = alone

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As of ArgumentParser. `--help` ends within it, before the environment is checked."""
        found = super().parse_known_args(args, namespace)
        try:
            only_torch_kernels(os.environ)  # refuses another value
            if self._alone:
                _check_alone()
        except ValueError as error:
            raise SystemExit(f"error: {error}") from None
        return found


def launcher_number(environment: Mapping[str, str], name: str, default: int) -> int:
    """A number that a launcher of several processes sets; ValueError naming it if it is none."""
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise ValueError(f"{name} must be a whole number, not {text[:20]!r}: it is the launcher's")
    return int(text)


def process_count(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes a launcher started; 1 without one. Raises ValueError if it says no number.

    Launchers are `accelerate launch` and `torchrun`.
    """
    return launcher_number(environment, "WORLD_SIZE", 1)


def _check_alone() -> None:
    if (count := process_count()) > 1:
        raise ValueError(
            f"WORLD_SIZE is {count}, but each of the processes would do the whole work; start this "
            "command without torchrun or accelerate launch, or unset WORLD_SIZE if neither "
            "started it"
        )


def command_parser(name: str, description: str | None, *, alone: bool = False) -> ArgumentParser:
    """The parser of `python -m engine NAME`; `--help` prints the description unchanged.

    `alone` is for commands that share no work among processes, see `CommandParser`.
    """
    return CommandParser(prog=f"python -m engine {name}", description=description, alone=alone)


def positive(text: str) -> int:
    """The type of an option that takes a whole number from 1."""
    return _whole(text, 1)


def not_negative(text: str) -> int:
    """The type of an option that takes a whole number from 0."""
    return _whole(text, 0)


def share(text: str) -> float:
    """The type of an option that takes a number from 0 to 1."""
    number = _number(text)
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 1; give one")
    return number


def above_zero(text: str) -> float:
    """The type of an option that takes a finite number above 0."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number above 0; give one")
    return number


def thread_count(text: str) -> int:
    """The type of `--threads`: a whole number from 1, at most four for each core."""
    number, most = _whole(text, 1), 4 * (os.cpu_count() or 1)
    if number > most:
        raise ArgumentTypeError(f"{text} is more than {most}, four for each core; give fewer")
    return number


def _path(text: str) -> Path:
    if not text:
        raise ArgumentTypeError("it is empty; name a file or a folder")
    return Path(text)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ArgumentTypeError(f"{text!r} is not a whole number from {least}; give one")
    return int(text)


def _number(text: str) -> float:
    """The number in a text; NaN, which no range contains, if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def make_out(folder: Path | None) -> None:
    """Create the folder of `--out`, if given, before the work.

    Raises ValueError if that is impossible, or if no file can be written there.
    """
    if folder is not None:
        try:
            check_writable(folder / "any file")
        except OSError as error:
            reason = f"cannot be used as a folder ({error.strerror}); name another"
            raise ValueError(f"--out: {folder} {reason}") from None


def refuse_flags(
    parser: ArgumentParser, args: Namespace, names: Iterable[str], reason: str
) -> None:
    """End the command with `reason` if one of the flags `names` is not at its default."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')}: {reason}")


def refuse_shorter(
    parser: ArgumentParser, args: Namespace, names: Iterable[str], remedy: str
) -> None:
    """End the command with a `remedy` if a shorter run would replace published figures.

    A run is shorter if one of the numbers `names` is below its default, or is given although its
    default is None, which stands for all.
    """
    for name in names:
        given, usual = getattr(args, name), parser.get_default(name)
        if given is not None and (usual is None or given < usual):
            parser.error(f"--{name.replace('_', '-')}: a shorter run is not published; {remedy}")


def failure(error: Exception, args: Namespace) -> SystemExit | BrokenPipeError:
    """The end of a command by an error. That of a file names the option that gave the file.

    That of the output, whose reader ended first, is left to `without_traceback`.
    """
    if isinstance(error, BrokenPipeError):
        return error
    if _ran_out_of_memory(error):
        return SystemExit(f"error: {OUT_OF_MEMORY}" + (f" ({error})" if str(error) else ""))
    if _is_output_full(error):
        return SystemExit(f"error: the output cannot be written ({error}); free some space")
    if isinstance(error, OSError) and isinstance(error.filename, str):
        for name, value in vars(args).items():
            given = value if isinstance(value, list) else [value]
            if any(isinstance(one, Path) and _of_path(error.filename, one) for one in given):
                said = f"{name}: {error.filename} cannot be used ({error.strerror}); name another"
                return SystemExit(f"error: {said}")
    return SystemExit(f"error: {error}")


def _of_path(file: str, path: Path) -> bool:
    """Whether a file is at a path, or one of them in the other."""
    a, b = Path(file).resolve(), path.resolve()
    return a.is_relative_to(b) or b.is_relative_to(a)


def table_command(
    name: str,
    about: str,
    table: Callable[[], str],
    section: str,
    file: Path,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a command that prints a table or writes it into a Markdown file.

    Args:
        name: the command, as in `python -m engine NAME`.
        about: its description for `--help`.
        table: makes the Markdown.
        section: the name of its marks in the file.
        file: README or RESULTS_README, relative to the repository root.
        arguments: the command line; None takes that of the process.
    """
    parser = command_parser(name, about)
    parser.add_argument("--write-readme", action="store_true", help=f"update the table in {file}")
    if not parser.parse_args(arguments).write_readme:
        print(table(), end="")
        return
    try:
        update_section(file, table(), section)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
