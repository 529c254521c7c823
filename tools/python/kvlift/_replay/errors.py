"""What ends a replay, with the exit code of the program."""

EQUAL, DIFFERENT, USAGE, UNREADABLE, INCONCLUSIVE, UNWRITABLE = range(6)


class ReplayError(Exception):
    """Raised with one line for people. `code` is the exit code."""

    code = UNREADABLE


class UsageError(ReplayError):
    """The runtime or the options that are asked for do not exist here."""

    code = USAGE


class RecordError(ReplayError):
    """The record, or a model that it refers to, cannot be read or is another one."""


class Refused(Exception):
    """ONNX Runtime does not load a model, or does not run a step.

    `node` is the node that it names, or empty.
    """

    def __init__(self, text: str, node: str = "") -> None:
        super().__init__(text)
        self.node = node
