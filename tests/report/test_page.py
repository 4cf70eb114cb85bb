import re
from html.parser import HTMLParser

import pytest

from cpalloc.errors import InputError
from cpalloc.report import Study, report_html, write_report
from cpalloc.report.figures import figures
from cpalloc.sim.measures import MEASURES, view
from cpalloc.sim.workload import Provenance
from report.studies import comparison, histories, preempting

FIGURES = ("Waits by class", "Owed and delivered", "Occupancy", "GPU timeline", "Charged over owed", "Room for gangs")
VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Reads a page: whether its tags match, its ids, links, headings, and what it would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.targets, self.loads, self.captions = [], [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name == "href" and value.startswith("#"):
                self.targets.append(value[1:])
            elif name in ("href", "src", "xlink:href"):
                self.loads.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page():
    return report_html([Study(comparison(), histories())], title="Two policies <& more>")


@pytest.fixture(scope="module")
def read(page):
    return Page(page)


def test_it_is_well_formed_and_its_links_lead_somewhere(read):
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    assert set(read.targets) <= set(read.ids)
    assert len(read.targets) >= len(FIGURES)


def test_nothing_is_loaded_and_nothing_runs(page, read):
    assert read.loads == []
    assert "script" not in read.tags
    assert {"link", "iframe", "object"}.isdisjoint(read.tags)
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg\")[^\"' <]*", page) == []
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))


def test_patterns_and_clips_exist(page, read):
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(read.ids)


def test_every_figure_is_there_with_label_caption_and_table(page):
    for title in FIGURES:
        part = page[page.index(f">{title}</h3>") :]
        part = part[: part.index("<h3")] if "<h3" in part else part
        assert part.count("<svg") == 1
        assert '<figcaption><span class="label constructed">constructed</span>' in part
        assert "<table>" in part


def test_every_measure_with_a_value_is_in_the_table(page):
    table = page[page.index(">All measures</h3>") : page.index(">Budgets</h3>")]
    for row in comparison().rows:
        assert (f"<td>{row.title}" in table) == any(row.cells)
    assert "delivered of owed, hour-capped\N{NO-BREAK SPACE}↑" in table
    assert len(MEASURES) > 40


def test_work_past_its_protection_is_hatched_and_a_preemption_red(page):
    timeline = page[page.index(">GPU timeline</h3>") : page.index(">Charged over owed</h3>")]
    # x holds the most GPU-hours and has the first hue; a is past its protection, then preempted
    assert re.search(r'<path d="[^"]+" fill="url\(#s1-timeline-past-332288\)" stroke="#FFFFFF"', timeline)
    assert re.search(r'fill="url\(#s1-timeline-lent-88CCEE\)" stroke="#FFFFFF"', timeline)
    assert 'stroke="#D40000"' in timeline
    assert "1 preempted" in timeline


def test_a_policy_without_interruptions_has_neither():
    c = comparison()
    timeline = next(f for f in figures("s", c, {"first come": view(histories()["first come"])}) if "timeline" in f.name)
    bars = re.findall(r'<path d="[^"]+" fill="([^"]+)" stroke="#FFFFFF"', timeline.svg)
    assert bars
    assert not any(fill.startswith("url(") for fill in bars)
    assert "0 preempted" in timeline.svg


def test_names_are_text_not_markup(page):
    assert "<title>Two policies &lt;&amp; more&gt;</title>" in page
    assert "<td>d &lt;&amp;&gt;</td>" in page
    assert "d <&>" not in page


def test_the_same_study_gives_the_same_page(page, tmp_path):
    again = tmp_path / "again.html"
    write_report(again, [Study(comparison(), histories())], title="Two policies <& more>")
    assert again.read_text(encoding="utf-8") == page


def test_a_small_page_is_small(page):
    assert len(page) < 300_000


def test_several_studies_stand_apart():
    trace = Study.of({"only": preempting(provenance=Provenance.TRACE)})
    text = report_html([Study(comparison()), trace])
    read = Page(text)
    assert len(set(read.ids)) == len(read.ids)
    assert text.count('<h2 id="') == 2
    assert '<h2 id="s2">toy <span class="label trace">trace</span></h2>' in text
    assert 'class="label trace"' not in text[: text.index('<h2 id="s2">')]


def test_provenances_and_unknown_scenarios_are_refused():
    with pytest.raises(InputError) as caught:
        report_html([Study(comparison(), {"other": preempting(provenance=Provenance.TRACE)})])
    assert [i.code for i in caught.value.issues] == ["unknown_scenario", "mixed_provenance"]
