"""`merlin-embeddings`: looks at checkpoints, and makes others of them.

Exit codes: 0, all is well; 1, `verify` found something wrong, or `diff` a difference; 2, it
couldn't be done, and the last line on standard error says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import foreign, summary

WELL, FOUND, FAILED = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: what stands behind the program's name; None: of this process.

    Returns:
        The exit code.
    """
    given = _parser().parse_args(arguments)
    try:
        return given.run(given)
    except BrokenPipeError:
        # Whoever read the output has gone. Nothing more is flushed into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (ValueError, TypeError, KeyError, OSError) as error:
        # What a KeyError says stands in quotes otherwise.
        said = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"merlin-embeddings {given.command}: {said}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="merlin-embeddings", description=_line(__doc__))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    inspect = _command(commands, "inspect", _inspect, "what is in a checkpoint, or in other files")
    inspect.add_argument("path", help="a checkpoint, or files of a format of `convert`")
    _add_source(inspect)
    inspect.add_argument("--quick", action="store_true", help="no norms: reads no vectors")
    inspect.add_argument("--json", action="store_true", help="for programs")

    verify = _command(commands, "verify", _verify, "reads everything and says what is wrong")
    verify.add_argument("path", help="a checkpoint, or files of a format of `convert`")
    _add_source(verify)

    diff = _command(commands, "diff", _diff, "how two checkpoints differ")
    diff.add_argument("a", help="a checkpoint")
    diff.add_argument("b", help="another")

    reshard = _command(
        commands, "reshard", _reshard, "writes a checkpoint in so many files a table"
    )
    reshard.add_argument("path", help="a checkpoint")
    reshard.add_argument("out", help="the new one")
    reshard.add_argument("--shards", type=int, required=True, help="how many files a table has")
    reshard.add_argument("--overwrite", action="store_true", help="replace a checkpoint at OUT")

    convert = _command(
        commands, "convert", _convert, "tables from one format to another", epilog=_formats()
    )
    convert.formatter_class = argparse.RawDescriptionHelpFormatter
    convert.add_argument("path", help="what to read")
    convert.add_argument("out", help="what to write; there is nothing of this name yet")
    convert.add_argument("--to", required=True, choices=foreign.FORMATS, metavar="FORMAT")
    _add_source(convert)
    convert.add_argument(
        "--lossy", action="store_true", help="leave out, or round, what FORMAT has no place for"
    )
    return parser


def _command(
    commands: Any, name: str, run: Callable, what: str, **kept: Any
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=what, description=what, **kept)
    command.set_defaults(run=run)
    return command


def _add_source(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--from",
        dest="format",
        choices=foreign.FORMATS,
        metavar="FORMAT",
        help="what PATH is, where that can't be seen",
    )
    command.add_argument(
        "--table",
        action="append",
        dest="tables",
        metavar="NAME",
        help="only this table; again for more",
    )


def _formats() -> str:
    width = max(map(len, foreign.FORMATS))
    lines = [f"  {name:<{width}}  {item.title}" for name, item in foreign.FORMATS.items()]
    return "\n".join(["formats:", *lines])


def _line(text: str | None) -> str:
    return (text or "").split("\n", 1)[0]


# Commands


def _inspect(given: argparse.Namespace) -> int:
    found = summary.summarize(given.path, given.format, given.tables, norms=not given.quick)
    if given.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        _console().print(found)
    return WELL


def _verify(given: argparse.Namespace) -> int:
    format = given.format or foreign.recognise(given.path)
    if format == "checkpoint" and given.tables is None:
        found = checkpoint.verify(given.path)
        for problem in found.problems:
            print(problem)
        count = f"{found.files} files, {summary.size(found.bytes)}"
        print(f"{count}: {len(found.problems) or 'nothing'} wrong")
        return FOUND if found.problems else WELL
    wrong = 0
    for source in foreign.read(given.path, format, given.tables):
        trouble = _problem(source)
        wrong += trouble is not None
        print(trouble or f"table '{source.name}': {source.count} rows, nothing wrong")
    return FOUND if wrong else WELL


def _problem(source: foreign.Source) -> str | None:
    """What is wrong with a table of another format, which has at most checksums."""
    try:
        rows, norms = summary.measure(source.entries())
    except ValueError as error:
        return str(error)
    if rows != source.count:
        return f"{source.path}: table '{source.name}' has {rows} rows, not {source.count}"
    if norms.bad:
        return f"{source.path}: table '{source.name}': {norms.bad} vectors have NaN or infinity"
    return None


def _diff(given: argparse.Namespace) -> int:
    found = checkpoint.diff(given.a, given.b)
    _console().print(summary.differences(found, given.a, given.b))
    return FOUND if found else WELL


def _reshard(given: argparse.Namespace) -> int:
    checkpoint.reshard(given.path, given.out, given.shards, given.overwrite)
    found = checkpoint.Checkpoint(given.out)
    for name in found.tables:
        print(f"table '{name}': {len(found.shards(name))} files")
    return WELL


def _convert(given: argparse.Namespace) -> int:
    format = given.format or foreign.recognise(given.path)
    if format == given.to == "checkpoint":
        raise ValueError(
            f"{given.path}: is a checkpoint already, whose id maps and weights would be lost; use "
            "reshard"
        )
    sources = foreign.read(given.path, format, given.tables)
    for lost in foreign.write(given.out, sources, given.to, given.lossy):
        print(f"left out: {lost}")
    for source in sources:
        print(f"table '{source.name}': {source.count} rows of {source.info.dim}")
    return WELL


def _console() -> Console:
    # Into a file or a pipe, lines may be longer than a terminal's.
    return Console(width=None if sys.stdout.isatty() else 200)


if __name__ == "__main__":
    sys.exit(main())
