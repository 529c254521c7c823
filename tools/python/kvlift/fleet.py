"""Runs `kvlift fleet` on the machines of a Ray cluster.

    python -m kvlift.fleet convert models -o out --ray auto --shards 16 -- --target ort

Needs the extra kvlift[ray]. The models and the folder of results have to be on a file system that
all machines share, and kvlift has to be installed on each of them. A shard whose machine fails is
resumed on another one.
"""

import argparse
import glob
import os
import subprocess
import sys
from typing import Any, List, Optional, Sequence, Tuple

RETRIES = 3  # of a shard whose machine has failed


def program() -> str:
    """Returns the path of kvlift: that of the environment, beside Python, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "kvlift")
    return os.environ.get("KVLIFT") or (beside if os.path.exists(beside) else "kvlift")


def work(arguments: List[str]) -> Tuple[int, str]:
    """Runs kvlift on the machine that Ray has chosen. Returns the exit code and stderr."""
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
    parser.add_argument("source", help="a list or a folder, on a shared file system")
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


def arguments_of(flags: argparse.Namespace, options: List[str], part: int) -> List[str]:
    """Returns the command line of a shard. It resumes, since Ray may run it a second time."""
    words = ["fleet", flags.command, os.path.abspath(flags.source), "-o", shard_folder(flags, part),
             "--shard", f"{part}/{flags.shards}", "--jobs", str(flags.jobs),
             "--threads", str(flags.threads), "--resume"]
    for name in ("memory", "timeout"):
        if getattr(flags, name) is not None:
            words += [f"--{name}", str(getattr(flags, name))]
    results = os.path.join(os.path.abspath(flags.output), "results.jsonl")
    if flags.command == "verify" and os.path.exists(results):
        words += ["--converted", results]
    return words + (["--", *options] if options else [])


def has_results(flags: argparse.Namespace) -> bool:
    """Returns whether a shard has results of this command already."""
    for path in glob.glob(os.path.join(glob.escape(flags.output), "shards", "*", "results.jsonl")):
        with open(path, encoding="ascii") as file:
            if any(f'"command":"{flags.command}"' in line for line in file):
                return True
    return False


def merge(flags: argparse.Namespace) -> int:
    """Joins the results of all shards, and returns the exit code of that."""
    files = sorted(glob.glob(os.path.join(glob.escape(flags.output), "shards", "*",
                                          "results.jsonl")))
    return subprocess.run([program(), "fleet", "merge", *files, "-o", flags.output, "--force"],
                          check=False).returncode


def run(ray: Any, flags: argparse.Namespace, options: List[str]) -> int:
    """Runs all shards on the cluster, and returns the exit code."""
    try:
        ray.init(address=None if flags.ray == "local" else flags.ray, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        print(f"kvlift: {flags.ray}: no Ray cluster: {str(error).splitlines()[0]}", file=sys.stderr)
        return 3
    needs = {"num_cpus": flags.jobs * flags.threads, "max_retries": RETRIES}
    if flags.memory is not None:
        needs["memory"] = int(flags.jobs * flags.memory * 2**30)
    remote = ray.remote(**needs)(work)
    waiting = {remote.remote(arguments_of(flags, options, part)): part
               for part in range(1, flags.shards + 1)}
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
