"""Results for people: tables for a terminal, and one HTML page with pictures that works offline."""

from cpalloc.report.sweep import study_of
from cpalloc.report.tables import comparison_leaves_table, comparison_table, leaves_table, summary_table
from cpalloc.report.write import Study, report_html, write_report

__all__ = [
    "Study",
    "comparison_leaves_table",
    "comparison_table",
    "leaves_table",
    "report_html",
    "study_of",
    "summary_table",
    "write_report",
]
