"""The CP-SAT formulation of a round: variables, one file a constraint, one file a tier."""
