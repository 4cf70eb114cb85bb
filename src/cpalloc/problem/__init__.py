"""The inside of a round: arrays, decisions, and the state of the cluster while one is built."""
