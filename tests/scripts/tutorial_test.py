"""Runs the tutorial as a reader would: it prints what it has kept."""

import copy
import os

import nbclient
import nbformat
from absl.testing import absltest

from tests import ROOT

_TUTORIAL = ROOT / "docs" / "guide" / "tutorial.ipynb"


def _texts(cell):
    """Returns what a cell shows as text; plots are compared by their being there."""
    return [
        output.get("text") or output.get("data", {}).get("text/plain")
        for output in cell.get("outputs", ())
    ]


class TutorialTest(absltest.TestCase):
    def test_it_gives_what_it_shows(self):
        try:
            import IPython  # noqa: F401
        except ImportError as error:
            self.skipTest(f"the environment has no IPython that works: {error}")
        kept = nbformat.read(_TUTORIAL, as_version=4)
        notebook = copy.deepcopy(kept)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
        folder = self.create_tempdir().full_path
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        nbclient.NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": folder}}
        ).execute(
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "IPYTHONDIR": folder,
                "TMPDIR": folder,
            }
        )
        for old, new in zip(kept.cells, notebook.cells, strict=True):
            self.assertEqual(_texts(new), _texts(old), old.source)

    def test_outputs_are_kept(self):
        notebook = nbformat.read(_TUTORIAL, as_version=4)
        nbformat.validate(notebook)
        outputs = [o for cell in notebook.cells for o in cell.get("outputs", ())]
        self.assertTrue(any("image/png" in o.get("data", {}) for o in outputs))
        self.assertNotIn("error", [output.output_type for output in outputs])
        # Nothing of the machine that ran it.
        self.assertNotIn(str(ROOT), _TUTORIAL.read_text())


if __name__ == "__main__":
    absltest.main()
