"""Runs `kvlift fleet` on the machines of a Ray cluster.

    python -m kvlift.fleet convert models -o out --ray auto --shards 16 -- --target ort

Needs the extra kvlift[ray]. The folder of results has to be on a file system that all machines
share, and kvlift has to be installed on each of them. A shard whose machine fails is resumed on
another one.

Models are on that file system, too, or wherever fsspec reads: a folder, a list or entries of a list
may be URLs such as s3://bucket/models. Each machine copies the models of its shard, with the other
files of their folders, and removes the copies at the end.
"""

import argparse
import glob
import os
import posixpath
import re
import shutil
import subprocess
import sys
from typing import Any, List, Optional, Sequence, Tuple

RETRIES = 3  # of a shard whose machine has failed


class RemoteError(Exception):
    """A URL that cannot be read, or fsspec is not installed."""


def is_url(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.:-]*://", path) is not None


def file_system(url: str) -> Tuple[Any, str]:
    """Returns the file system of a URL, and its path there."""
    try:
        import fsspec  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise RemoteError(f"{url}: needs fsspec: pip install 'kvlift[ray]'") from None
    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, OSError, ValueError) as error:
        raise RemoteError(f"{url}: {error}") from None


def entries_of(text: str, folder: str) -> List[str]:
    """Returns the entries of a list, whose paths are relative to the folder of the list."""
    entries = []
    for line in text.splitlines():
        entry = re.sub(r"(^|\s)#.*", "", line).strip()
        if entry and not is_url(entry):
            join = posixpath.join if is_url(folder) else os.path.join
            entry = join(folder, entry)
        if entry:
            entries.append(entry)
    return entries


def remote_models(source: str) -> Optional[List[str]]:
    """Returns the models of a folder or list if some are URLs, else None."""
    if not is_url(source):
        if not os.path.isfile(source):
            return None
        with open(source, encoding="utf-8", errors="surrogateescape") as file:
            entries = entries_of(file.read(), os.path.dirname(os.path.abspath(source)))
        return entries if any(map(is_url, entries)) else None
    system, path = file_system(source)
    try:
        if not system.isdir(path):
            return entries_of(system.cat_file(path).decode("utf-8"), posixpath.dirname(source))
        return sorted(system.unstrip_protocol(name) for name in system.find(path)
                      if name.endswith(".onnx"))
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteError(f"{source}: {error}") from None


def place_of(model: str, root: str) -> str:
    """Returns the path of a model's copy, in a folder of its own below `root`, or the path of a model
    that is no URL."""
    if not is_url(model):
        return model
    path = os.path.join(root, model.replace("://", "/", 1).replace("..", "__"))
    return os.path.join(os.path.splitext(path)[0], os.path.basename(path))


def copy(url: str, here: str) -> None:
    """Copies a model to the path `here`, with the other files of its folder, such as external data
    and manifests, but without other models."""
    system, path = file_system(url)
    folder, own = posixpath.dirname(path), posixpath.basename(path)
    try:
        os.makedirs(os.path.dirname(here), exist_ok=True)
        for found in system.ls(folder, detail=True):
            name = posixpath.basename(found["name"])
            if found["type"] == "file" and (name == own or not name.endswith(".onnx")):
                system.get_file(found["name"], os.path.join(os.path.dirname(here), name))
    except OSError as error:
        raise RemoteError(f"{url}: {error}") from None


def program() -> str:
    """Returns the path of kvlift: that of the environment, beside Python, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "kvlift")
    return os.environ.get("KVLIFT") or (beside if os.path.exists(beside) else "kvlift")


def work(arguments: List[str], copies: Sequence[Tuple[str, str]] = ()) -> Tuple[int, str]:
    """Runs kvlift on the machine that Ray has chosen. Returns the exit code and stderr. `copies`:
    URLs of models of the shard, with the paths at which the list has them."""
    try:
        for url, here in copies:
            copy(url, here)
        return run_here(arguments)
    except RemoteError as error:
        return 3, f"kvlift: {error}\n"
    finally:
        for _, here in copies:
            shutil.rmtree(os.path.dirname(here), ignore_errors=True)


def run_here(arguments: List[str]) -> Tuple[int, str]:
    try:
        done = subprocess.run([program(), *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        return 70, f"kvlift: cannot be run on {os.uname().nodename}: {error}\n"
    return done.returncode, done.stderr.decode("utf-8", "replace")


def parse(arguments: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """Returns the flags, and the options of the command that stand behind `--`."""
    own = list(arguments)
    options: List[str] = []
    if "--" in own:
        at = own.index("--")
        own, options = own[:at], own[at + 1:]
    parser = argparse.ArgumentParser(prog="python -m kvlift.fleet", allow_abbrev=False,
                                     description="Runs kvlift fleet on a Ray cluster")
    parser.add_argument("command", choices=("convert", "verify", "check"))
    parser.add_argument("source", help="a list or a folder, shared or a URL")
    parser.add_argument("-o", "--output", required=True, help="the folder of results, shared too")
    parser.add_argument("--ray", required=True, metavar="ADDRESS",
                        help="of the cluster: auto, HOST:PORT, ray://HOST:PORT; local starts one")
    parser.add_argument("--shards", type=int, required=True, metavar="N",
                        help="parts of the list; each is worked on by one machine")
    parser.add_argument("--jobs", type=int, default=1, help="models at once, of each shard")
    parser.add_argument("--threads", type=int, default=1, help="of each model")
    parser.add_argument("--memory", type=float, help="GiB that each model may allocate")
    parser.add_argument("--timeout", type=float, help="seconds for each model")
    parser.add_argument("--resume", action="store_true", help="keep results that are there already")
    flags = parser.parse_args(own)
    if min(flags.shards, flags.jobs, flags.threads) < 1:
        parser.error("--shards, --jobs and --threads have to be at least 1")
    return flags, options


def shard_folder(flags: argparse.Namespace, part: int) -> str:
    return os.path.join(os.path.abspath(flags.output), "shards", str(part))


def arguments_of(flags: argparse.Namespace, options: List[str], source: str,
                 part: int) -> List[str]:
    """Returns the command line of a shard. It resumes, since Ray may run it a second time."""
    words = ["fleet", flags.command, os.path.abspath(source), "-o", shard_folder(flags, part),
             "--shard", f"{part}/{flags.shards}", "--jobs", str(flags.jobs),
             "--threads", str(flags.threads), "--resume"]
    for name in ("memory", "timeout"):
        if getattr(flags, name) is not None:
            words += [f"--{name}", str(getattr(flags, name))]
    results = os.path.join(os.path.abspath(flags.output), "results.jsonl")
    if flags.command == "verify" and os.path.exists(results):
        words += ["--converted", results]
    return words + (["--", *options] if options else [])


def results_of_shards(flags: argparse.Namespace) -> List[str]:
    return glob.glob(os.path.join(glob.escape(flags.output), "shards", "*", "results.jsonl"))


def is_of(line: str, command: str) -> bool:
    return f'"command":"{command}"' in line


def has_results(flags: argparse.Namespace) -> bool:
    """Returns whether a shard has results of this command already."""
    for path in results_of_shards(flags):
        with open(path, encoding="ascii") as file:
            if any(is_of(line, flags.command) for line in file):
                return True
    return False


def drop_other_parts(flags: argparse.Namespace) -> None:
    """Drops the results that this command has in shards which a run with more parts made. The
    shards of this run know by themselves which of their results are out of date."""
    own = {os.path.join(shard_folder(flags, part), "results.jsonl")
           for part in range(1, flags.shards + 1)}
    for path in map(os.path.abspath, results_of_shards(flags)):
        if path in own:
            continue
        with open(path, encoding="ascii") as file:
            kept = [line for line in file if not is_of(line, flags.command)]
        with open(path + ".part", "w", encoding="ascii") as file:
            file.writelines(kept)
        os.replace(path + ".part", path)


def merge(flags: argparse.Namespace) -> int:
    """Joins the results of all shards, and returns the exit code of that."""
    files = sorted(results_of_shards(flags))
    return subprocess.run([program(), "fleet", "merge", *files, "-o", flags.output, "--force"],
                          check=False).returncode


def write_list(flags: argparse.Namespace, models: List[str]) -> str:
    """Writes the list of all models, with the paths that their copies will have, and returns its
    path."""
    root = os.path.join(os.path.abspath(flags.output), "copies")
    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, "models.txt")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(place_of(model, root) + "\n" for model in models)
    return path


def run(ray: Any, flags: argparse.Namespace, options: List[str]) -> int:
    """Runs all shards on the cluster, and returns the exit code."""
    source = flags.source
    try:
        models = remote_models(source)
        if models == []:
            raise RemoteError(f"{source}: there are no models")
    except RemoteError as error:
        print(f"kvlift: {error}", file=sys.stderr)
        return 3
    try:
        ray.init(address=None if flags.ray == "local" else flags.ray, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        print(f"kvlift: {flags.ray}: no Ray cluster: {str(error).splitlines()[0]}", file=sys.stderr)
        return 3
    try:
        if models is not None:
            source = write_list(flags, models)
    except OSError as error:
        print(f"kvlift: {flags.output}: {error.strerror}", file=sys.stderr)
        return 5
    drop_other_parts(flags)
    needs = {"num_cpus": flags.jobs * flags.threads, "max_retries": RETRIES}
    if flags.memory is not None:
        needs["memory"] = int(flags.jobs * flags.memory * 2**30)
    remote = ray.remote(**needs)(work)
    waiting = {}
    for part in range(1, flags.shards + 1):
        copies = [(model, place_of(model, os.path.dirname(source)))
                  for model in (models or [])[part - 1::flags.shards] if is_url(model)]
        waiting[remote.remote(arguments_of(flags, options, source, part), copies)] = part
    failed = 0
    while waiting:
        ended, _ = ray.wait(list(waiting), num_returns=1)
        part = waiting.pop(ended[0])
        try:
            code, errors = ray.get(ended[0])
        except ray.exceptions.RayError as error:
            code, errors = 70, f"kvlift: Ray has given the shard up: {error}\n"
        sys.stderr.write(f"shard {part}/{flags.shards}\n{errors}")
        if code not in (0, 1):  # the run itself failed, not a model
            failed = failed or code
    ray.shutdown()
    if models is not None:
        shutil.rmtree(os.path.dirname(source), ignore_errors=True)
    return failed or merge(flags)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    flags, options = parse(sys.argv[1:] if arguments is None else arguments)
    if not flags.resume and has_results(flags):
        print(f"kvlift: {flags.output}: has results of {flags.command}; --resume keeps them",
              file=sys.stderr)
        return 5
    try:
        import ray  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("kvlift: needs Ray: pip install 'kvlift[ray]'", file=sys.stderr)
        return 2
    return run(ray, flags, options)


if __name__ == "__main__":
    sys.exit(main())
