"""Benchmarks: cases × phases, and the table of what every tier reached and proved."""
