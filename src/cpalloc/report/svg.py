"""Altair charts as small SVG to stand in a page: no scripts, no ids that clash, hatching as patterns."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import altair as alt
import vl_convert

from cpalloc.report.palette import GRID, INK, MUTED, lighter

FONT = "Helvetica, Arial, sans-serif"
_NAMESPACE = "http://www.w3.org/2000/svg"
_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

_NEEDLESS = {"role", "class", "aria-roledescription", "aria-hidden", "aria-label", "pointer-events", "font-family"}
_DEFAULTS = {"opacity": "1", "stroke-width": "1", "fill-opacity": "1"}
_LONG = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_STRIPES = 6
"""Distance of the stripes of a hatching in pixels."""

_CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "#FFFFFF",
    "aria": False,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "labelFontSize": 11,
        "titleColor": MUTED,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": "#999999",
        "tickColor": "#999999",
        "labelLimit": 260,
    },
    "title": {"anchor": "start", "color": INK, "fontSize": 12, "fontWeight": "bold", "offset": 5},
    "legend": {"labelColor": INK, "labelFontSize": 11, "titleColor": MUTED, "titleFontSize": 11, "labelLimit": 260},
    "concat": {"spacing": 12},
}


def past_protection(colour: str) -> str:
    """Fill of allocated work past its protection: the hue with white stripes."""
    return f"url(#past-{colour.removeprefix('#')})"


def lent(colour: str) -> str:
    """Fill of borrowed work: a tint of the hue, striped with it the other way."""
    return f"url(#lent-{colour.removeprefix('#')})"


def render(chart: alt.TopLevelMixin, name: str, description: str) -> str:
    """Draw a chart as an ``<svg>`` element.

    Parameters
    ----------
    chart
        Fills made by :func:`past_protection` and :func:`lent` become patterns.
    name : str
        Unique in the page; all ids of the drawing begin with it.
    description : str
        What a screen reader says.
    """
    spec = {**chart.to_dict(), "config": _CONFIG}
    return tidy(vl_convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE), name, description)


def tidy(svg: str, name: str, description: str) -> str:
    """Make an SVG of Vega small, and safe to stand in one page with others."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    _drop_empty(root)
    ids = {e.attrib["id"]: f"{name}-{i}" for i, e in enumerate(e for e in root.iter() if "id" in e.attrib)}
    patterns = sorted(p for p in _references(root) if p not in ids)
    ids |= {pattern: f"{name}-{pattern}" for pattern in patterns}
    for element in root.iter():
        element.attrib = {k: _attribute(k, v, ids) for k, v in element.attrib.items() if _is_needed(k, v)}
    if patterns:
        ElementTree.SubElement(root, "defs").extend(_pattern(pattern, ids[pattern]) for pattern in patterns)
    _set_root(root, description)
    return ElementTree.tostring(root, encoding="unicode")


def _drop_empty(element: ElementTree.Element) -> None:
    for child in list(element):
        _drop_empty(child)
        if (child.tag == "g" and not len(child)) or (child.tag == "path" and child.get("d") in ("", "M0,0h0v0h0Z")):
            element.remove(child)


def _references(root: ElementTree.Element) -> set[str]:
    return {found for e in root.iter() for value in e.attrib.values() for found in _REFERENCE.findall(value)}


def _is_needed(name: str, value: str) -> bool:
    return name not in _NEEDLESS and _DEFAULTS.get(name) != value


def _attribute(name: str, value: str, ids: dict[str, str]) -> str:
    if name == "id":
        return ids[value]
    if "url(#" in value:
        return _REFERENCE.sub(lambda m: f"url(#{ids[m[1]]})", value)
    return value if name.endswith("opacity") else _LONG.sub(_short, value)


def _short(number: re.Match[str]) -> str:
    rounded = round(float(number[0]), 1)
    return f"{rounded:g}" if rounded else "0"


def _set_root(root: ElementTree.Element, description: str) -> None:
    width, box = root.attrib["width"], root.attrib["viewBox"]
    root.attrib = {
        "xmlns": _NAMESPACE,
        "role": "img",
        "aria-label": description,
        "viewBox": box,
        "width": width,
        "font-family": FONT,
    }


def _pattern(reference: str, id_: str) -> ElementTree.Element:
    """Stripes: of white on the hue (``past-…``), or of the hue on a tint of it, the other way (``lent-…``)."""
    kind, _, code = reference.partition("-")
    hue = f"#{code}"
    ground, stripe, turn, width = (hue, "#FFFFFF", 45, 1.6) if kind == "past" else (lighter(hue, 0.72), hue, -45, 1.2)
    pattern = ElementTree.Element(
        "pattern",
        {
            "id": id_,
            "patternUnits": "userSpaceOnUse",
            "width": str(_STRIPES),
            "height": str(_STRIPES),
            "patternTransform": f"rotate({turn})",
        },
    )
    size = str(_STRIPES)
    ElementTree.SubElement(pattern, "rect", {"width": size, "height": size, "fill": ground})
    ElementTree.SubElement(pattern, "rect", {"width": str(width), "height": size, "fill": stripe})
    return pattern
