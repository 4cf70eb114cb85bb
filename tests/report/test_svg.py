from itertools import combinations
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pytest

from cpalloc.report import palette, svg
from cpalloc.report.charts import rows_chart

SOURCE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" viewBox="0 0 9 9">'
    '<g class="mark" role="graphics-object"><path d=""/><g><path d="M0,0h0v0h0Z"/></g>'
    '<rect id="clip1" x="1.23456" opacity="1" fill="url(#past-332288)"/>'
    '<rect clip-path="url(#clip1)" opacity="0.123" fill="url(#lent-FFFFFF)"/><text>3.14159</text></g></svg>'
)


@pytest.fixture(scope="module")
def tidied():
    return ElementTree.fromstring(svg.tidy(SOURCE, "fig", 'a "b" <c>'))


def named(root, tag):
    return root.findall(f".//{{http://www.w3.org/2000/svg}}{tag}")


def test_ids_and_references_get_the_name_of_the_figure(tidied):
    clip, clipped = named(tidied, "rect")[:2]
    assert clip.get("id") == "fig-0"
    assert clipped.get("clip-path") == "url(#fig-0)"


def test_hatches_become_patterns_once_each(tidied):
    patterns = named(tidied, "pattern")
    assert [p.get("id") for p in patterns] == ["fig-lent-FFFFFF", "fig-past-332288"]
    assert named(tidied, "rect")[0].get("fill") == "url(#fig-past-332288)"
    grounds = [[rect.get("fill") for rect in p] for p in patterns]
    assert grounds[1] == ["#332288", "#FFFFFF"]


def test_clutter_goes_and_numbers_are_short(tidied):
    assert named(tidied, "path") == []
    first, second = named(tidied, "rect")[:2]
    assert (first.get("x"), first.get("opacity"), second.get("opacity")) == ("1.2", None, "0.123")
    assert named(tidied, "g")[0].attrib == {}
    assert named(tidied, "text")[0].text == "3.14159"


def test_the_drawing_says_what_it_is(tidied):
    assert (tidied.get("role"), tidied.get("aria-label")) == ("img", 'a "b" <c>')


def test_a_chart_is_drawn_with_its_fills():
    rows = [{"x": 0, "x2": 1, "c": svg.past_protection("#332288")}]
    chart = rows_chart(rows).mark_rect().encode(x="x:Q", x2="x2:Q", fill=alt.Fill("c:N", scale=None))
    drawn = svg.render(chart, "one", "a bar")
    assert 'fill="url(#one-past-332288)"' in drawn
    assert svg.render(chart, "one", "a bar") == drawn


# sRGB seen without the long, middle or short wavelength cones: Machado et al. (2009), severity 1.0
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


@pytest.mark.parametrize("matrix", BLINDNESS.values(), ids=BLINDNESS)
def test_hues_can_be_told_apart_with_any_common_colour_vision(matrix):
    colours = [*palette.HUES, palette.OTHERS]
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
    gaps = [np.linalg.norm(a - b) for a, b in combinations(seen, 2)]
    assert min(gaps) > 0.12


def test_a_hue_is_made_lighter():
    assert palette.lighter("#000000", 0.5) == "#808080"
    assert palette.lighter("#332288", 0.0) == "#332288"


def test_budgets_beyond_the_hues_share_a_grey():
    names = [f"t{i}" for i in range(12)]
    found = palette.hues(names)
    assert (found.others, found["t0"], found["t11"]) == (3, palette.HUES[0], palette.OTHERS)
    assert len(palette.line_colours(names)) == len(palette.line_dashes(names)) == 12
