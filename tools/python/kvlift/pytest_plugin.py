"""The plugin that pytest finds where the package is installed: the fixture `kvlift`.

    def test_my_conversion(kvlift):
        kvlift.assert_equal_models("model.onnx", "out.onnx")
"""

import pathlib
from typing import Any

import pytest


class Kvlift:
    """What the fixture gives: assertions and the functions of the package."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def assert_equal_models(self, before: Any, after: Any, *, accept: str = "proved",
                            **options: Any) -> Any:
        """As `kvlift.testing.assert_equal_models`."""
        __tracebackhide__ = True
        from .testing import assert_equal_models

        return assert_equal_models(before, after, accept=accept, **options)

    def converted(self, model: Any, name: str = "converted.onnx", **options: Any) -> pathlib.Path:
        """Converts a model into the test's folder and returns the path of the result.

        The options are those of `kvlift.convert`. Fails the test if a cache is not converted, if
        the name is a path, or if the folder has a file of that name.
        """
        __tracebackhide__ = True
        import kvlift

        path = self._folder / name
        if path.parent != self._folder or name in ("", ".", ".."):
            pytest.fail(f"{name!r} is no name of a file in the test's folder", pytrace=False)
        if path.exists():
            pytest.fail(f"{path} exists: give each result of a test its own name", pytrace=False)
        result = kvlift.convert(model, **options)
        if not result:
            refused = [f"{c['id']}: {c['reason']['code']} {c['reason']['text']}"
                       for c in result.caches if c.get("reason")]
            pytest.fail(f"{result.status}: " + ("; ".join(refused) or "no cache was converted"),
                        pytrace=False)
        result.save(path)
        return path

    def __getattr__(self, name: str) -> Any:
        import kvlift

        if name not in kvlift.__all__:
            raise AttributeError(f"kvlift has no {name}")
        return getattr(kvlift, name)


@pytest.fixture
def kvlift(tmp_path: pathlib.Path) -> Kvlift:
    """Assertions about models, and the functions of the package kvlift."""
    return Kvlift(tmp_path)
