"""Measures of a round: occupancy, fragmentation, fairness, waits. Pure functions, exact integers and fractions."""
