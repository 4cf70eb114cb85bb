"""Greedy, the strict-order loop, solver runs, realisation, guard."""
