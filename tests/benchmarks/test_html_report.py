"""The page with charts: one well-formed document whose marks and tables say what was measured."""

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import charts
import html_report
import pytest
import report
import workers
from cases import Batch, TableSet
from measure import Result

TABLES = TableSet(2, 1000, 16)
BATCHES = (Batch(4, 1), Batch(8, 10))


def record(peer, group="forward", batch=BATCHES[0], median=2.0, ours=1.0, tables=TABLES):
    found = Result(peer, group, tables, batch, "way", 9, median, median, (median, median))
    found.ours_ms = ours
    return found.record()


def document(results, **more):
    return {
        "benchmark": "lookup",
        "date": "2026-11-30T11:19:04+00:00",
        "seconds": 12.5,
        "quick": False,
        "threads": 2,
        "machine": {
            "cpu": "A <Processor>", "cores": 2, "usable_cores": 2, "instruction_sets": ["avx2"],
            "caches": {"L1 data": "48K"}, "memory_gib": 23.5, "kernel": "6", "python": "3.11",
            "transparent_huge_pages": "always", "others_cpu_percent": 3.5,
        },
        "versions": {workers.OURS: {"tensorflow": "2.21.0"}, "torchrec EBC": {"torchrec": "1.8.0"}},
        "left_out": {},
        "results": results,
        **more,
    }  # fmt: skip


def some_results():
    return [
        record(workers.OURS, median=1.0),
        record("torch EmbeddingBag", median=2.0),
        record("torchrec EBC", median=4.0),
        record(workers.LIMIT, median=0.5),
        record(workers.OURS, batch=BATCHES[1], median=1.0),
        record("torch EmbeddingBag", batch=BATCHES[1], median=0.5),
    ]


class Balance(HTMLParser):
    """Every element that opens closes, in order; nothing comes from elsewhere."""

    VOID = ("meta", "img")

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.tags = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def charts_of(text):
    """Of each chart its alternative text, and the texts in the drawing."""
    found = re.findall(
        r'<img class="chart" alt="([^"]*)" src="data:image/svg\+xml;base64,(.*?)">', text
    )
    drawings = [ElementTree.fromstring(base64.b64decode(data)) for _, data in found]
    texts = [[t.text for t in d.iter("{http://www.w3.org/2000/svg}text")] for d in drawings]
    return [(alt, its) for (alt, _), its in zip(found, texts, strict=True)]


def test_the_page_is_well_formed_and_fetches_nothing():
    text = html_report.page([document(some_results(), uniform=some_results())])
    page = Balance(text)
    assert all(link.startswith("data:") for link in page.links)
    assert "script" not in page.tags and "link" not in page.tags
    assert "url(" not in text and "@import" not in text
    assert "A &lt;Processor&gt;" in text and "tensorflow 2.21.0" in text and "2026-11-30" in text


def test_bars_reach_from_1_to_the_ratio():
    rows = [charts.Bar("a", 2.0, "2.00x", "good"), charts.Bar("b", 0.5, "0.50x", "bad")]
    [axes] = charts.bars(rows, [charts.Line(1.3, "goal")], "times", log=True).axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(1, 1.0), (1, -0.5)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xscale() == "log"
    [axes] = charts.bars(rows, [], "percent", log=False).axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 2.0), (0, 0.5)]


def test_the_ratio_of_each_case_to_its_best_peer_is_drawn_with_the_goals():
    text = html_report.page([document(some_results())])
    _, ratios = charts_of(text)[0]
    assert {"2.00x", "0.50x", "goal of the mean 1.3x", "goal of each 1.0x"} <= set(ratios)
    assert "torch EmbeddingBag</td>" in text


def test_every_chart_has_words_and_the_numbers_as_a_table():
    text = html_report.page([document(some_results(), uniform=some_results())])
    found = charts_of(text)
    assert len(found) == 4  # ratios, throughput, share of the limit, the large table
    assert all(len(alt) > 20 for alt, _ in found)
    assert "from 0.50x to 2.00x; 1 reach 1.0x" in found[0][0]
    assert text.count("The same as a table") == 5  # and the summary
    # 2 tables x 4 bags in 0.5 ms at the limit, 1 ms ours.
    assert "<td>50%</td>" in text
    assert "<td>0.008</td><td>0.004</td><td>0.002</td><td>0.016</td>" in text


def test_dots_look_as_their_series_and_miss_what_wasnt_measured():
    rows = [charts.Dots("a", {"x": 1.0, "y": 3.0}), charts.Dots("b", {"y": 2.0})]
    figure = charts.dots(rows, {"x": 0, "y": 4}, "million")
    marks = {line.get_label(): line for line in figure.axes[0].lines}
    assert {name: (line.get_color(), line.get_marker()) for name, line in marks.items()} == {
        "x": charts.LOOKS[0],
        "y": charts.LOOKS[4],
    }
    assert marks["x"].get_xydata().tolist() == [[1, 0]]
    assert marks["y"].get_xydata().tolist() == [[3, 0], [2, 1]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]


def test_later_documents_replace_the_cases_they_have():
    again = [record(workers.OURS, median=1.0), record("torch EmbeddingBag", median=8.0)]
    text = html_report.page([document(some_results()), document(again)])
    _, ratios = charts_of(text)[0]
    assert {"8.00x", "0.50x"} <= set(ratios) and "2.00x" not in ratios


def test_what_is_missing_is_said_with_its_reason():
    skipped = record("Keras")
    skipped |= {"median_ms": None, "skipped": "needs 26.1 GiB of memory"}
    text = html_report.page([
        document([*some_results(), skipped], left_out={"fbgemm TBE": "no environment with torch"})
    ])  # fmt: skip
    assert "<td>needs 26.1 GiB of memory</td><td>forward: 2 x 1k x 16, 4 x 1</td>" in text
    assert "no environment with torch" in text


def test_a_document_without_results_gives_a_page():
    text = html_report.page([document([])])
    Balance(text)
    assert charts_of(text) == []


def test_records_come_back_as_they_were_and_from_older_files():
    result = Result("a", "sgd", TABLES, BATCHES[1], "way", 3, 2.0, 1.0, (1.0, 3.0), (1.5, 2.5), 4.0)
    assert Result.of_record(json.loads(json.dumps(result.record()))).ratio == 0.5
    older = {k: v for k, v in result.record().items() if k != "interval_ms"} | {"gone": 1}
    assert Result.of_record(older).tables == TABLES
    assert Result.of_record(older).interval_ms is None


def test_the_command_reads_files_and_refuses_others(tmp_path, capsys):
    first, other, out = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "page.html"
    first.write_text(json.dumps(document(some_results())))
    assert html_report.main([str(first), "--out", str(out)]) == 0
    Balance(out.read_text())
    other.write_text("{}")
    with pytest.raises(SystemExit):
        html_report.main([str(other)])
    assert "b.json is no file of lookup.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0034567, "0.00346"), (1, "1"), (2.5, "2.5"), (12.345, "12.3"), (1234.6, "1,235")],
)
def test_numbers_have_three_digits(value, text):
    assert charts.number(value) == text


def test_goals_name_every_group_that_the_page_shows():
    assert set(report.TITLES) == set(report.GOALS)
