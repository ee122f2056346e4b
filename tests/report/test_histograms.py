"""Does a histogram show every group's shares?"""

import numpy as np

from jaxfeat.report.figure_files import numbers_of, save_figure
from jaxfeat.report.histograms import log_histogram


def test_shares(tmp_path):
    """Each group's bars sum to 1 over common bins; an empty group is left out."""
    groups = {"a": [0.1, 1, 1, 10], "b": [2.0], "none": []}
    figure, panels = log_histogram("t", groups, x_label="Q", y_label="share", bins=6)
    lines = panels[0].lines
    assert [line.label for line in lines] == ["a (4)", "b (1)"]
    for line in lines:
        np.testing.assert_allclose(np.sum(line.y), 1)
    np.testing.assert_array_equal(lines[0].x, lines[1].x)
    np.testing.assert_allclose(np.diff(np.log(lines[0].x)), np.log(100 * 1.001**2) / 6)
    assert lines[0].y[0] == 0.25 and lines[0].y[-1] == 0.25
    assert save_figure(figure, tmp_path, "h", numbers_of(panels)).exists()
