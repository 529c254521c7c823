"""The sources of text cases as Python tests read them (support/case_text.py).

Environment: KVLIFT_ROOT, the repository.
"""
import os
import unittest

import onnx
import onnx.parser
from support.case_text import FOLDER, apply_edits, sections_of_case, text_of_case

BASE = "a\nb\n\nb\na"


class CaseText(unittest.TestCase):
    def test_edits_keep_remove_and_add_lines(self):
        self.assertEqual(apply_edits(BASE, "-a\n-b"), "\nb\na")
        self.assertEqual(apply_edits(BASE, " a\n+c\n b"), "a\nc\nb\n\nb\na")
        self.assertEqual(apply_edits(BASE, "-a\n b\n\n\n b\n-a\n"), "b\n\nb")

    def test_an_edit_has_one_place(self):
        for edits, places in (("-b", 2), ("-c", 0)):
            with self.assertRaisesRegex(ValueError, f"{places} places for the edit {edits}"):
                apply_edits(BASE, edits)

    def test_every_case_has_a_source(self):
        names = [os.path.splitext(name)[0] for name in sorted(os.listdir(FOLDER))]
        edited = [name for name in names if "before" not in sections_of_case(name)]
        self.assertGreater(len(edited), len(names) // 2)
        for name in names:
            with self.subTest(name):
                onnx.checker.check_model(onnx.parser.parse_model(text_of_case(name)))


if __name__ == "__main__":
    unittest.main()
