"""Tests of the plugin for pytest; python_package_test.py runs them with the installed package.

Environment: KVLIFT_MODELS, the bundled models.
"""

import os
import pathlib
import shutil

import kvlift
import onnx
import pytest
from kvlift.testing import assert_equal_models

MODELS = pathlib.Path(os.environ["KVLIFT_MODELS"])
pytest_plugins = ["pytester"]


@pytest.fixture
def models(pytester):
    """The folder of a test run, with a source and a conversion of it that is wrong."""
    folder = pytester.path
    shutil.copy(MODELS / "llama_optimum" / "model.onnx", folder)
    shutil.copy(MODELS / "neg_concat_reversed_ts" / "model.onnx", folder / "refused.onnx")
    kvlift.convert(folder / "model.onnx").save(folder / "wrong.onnx")
    model = onnx.load(folder / "wrong.onnx")
    node = [n for n in model.graph.node if n.op_type == "Attention"][-1]
    kept = [a for a in node.attribute if a.name != "scale"]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("scale", 3.0)])
    onnx.save(model, folder / "wrong.onnx")
    return folder


def test_the_fixture_is_found(pytester):
    pytester.runpytest_subprocess("--fixtures").stdout.fnmatch_lines(["kvlift -- *"])


def test_equal(pytester, models):
    pytester.makepyfile("""
        def test_equal(kvlift):
            after = kvlift.converted("model.onnx", target="ort")
            verdict = kvlift.assert_equal_models("model.onnx", after)
            assert verdict and verdict.kind == "equal"
            assert len(kvlift.caches("model.onnx")) == 4
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_different(pytester, models):
    pytester.makepyfile("""
        def test_different(kvlift):
            kvlift.assert_equal_models("model.onnx", "wrong.onnx")
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "*AssertionError: models differ: KV4*", "*source: *model.onnx", "*other: *wrong.onnx",
        "*plan: *, step *", "*element: *[[]*] is * in the source and * in the other model",
        "*nodes: *Attention*", "*plans: *not: *", "*kvlift explain KV4*"])
    # The line of the test is shown, and none of the package.
    result.stdout.no_fnmatch_line("*testing.py*")


def test_results_have_names_of_their_own(pytester, models):
    pytester.makepyfile("""
        def test_twice(kvlift):
            kvlift.converted("model.onnx")
            kvlift.converted("model.onnx", name="other.onnx")
            kvlift.converted("model.onnx")

        def test_elsewhere(kvlift):
            kvlift.converted("model.onnx", name="../elsewhere.onnx")
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*converted.onnx exists: give each result of a test its own name",
                                 "*'../elsewhere.onnx' is no name of a file in the test's folder"])


def test_what_is_not_converted(pytester, models):
    pytester.makepyfile("""
        def test_refused(kvlift):
            kvlift.converted("refused.onnx")
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*refused: *KV2*"])


def test_unknown_names_and_options(pytester, models):
    pytester.makepyfile("""
        import pytest

        def test_wrong(kvlift):
            with pytest.raises(AttributeError, match="no nonesuch"):
                kvlift.nonesuch
            with pytest.raises(ValueError, match="accept"):
                kvlift.assert_equal_models("model.onnx", "model.onnx", accept="all")
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


class Tested:
    """A verdict that is neither equal nor different."""

    kind, reason = "equal as tested", "KV410 run up to 3 sequences; open: a fact"
    document = {"plans": [{"name": "decode", "status": "bitwise"}], "counterexample": None}


def test_accept(monkeypatch):
    monkeypatch.setattr(kvlift, "verify", lambda before, after, **options: Tested())
    assert assert_equal_models(b"a", b"b", accept="tested").kind == "equal as tested"
    with pytest.raises(AssertionError) as raised:
        assert_equal_models(b"a", b"bc")
    text = str(raised.value)
    assert text.startswith("models are equal as tested: KV410")
    assert 'accept="tested" takes this for equal' in text
    assert "a model of 2 bytes" in text


def test_inconclusive_is_no_pass(monkeypatch):
    monkeypatch.setattr(Tested, "kind", "inconclusive")
    monkeypatch.setattr(kvlift, "verify", lambda before, after, **options: Tested())
    with pytest.raises(AssertionError, match="models are inconclusive"):
        assert_equal_models(b"a", b"b", accept="tested")
