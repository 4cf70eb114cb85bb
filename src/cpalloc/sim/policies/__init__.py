"""Policies a workload can be replayed under, one small file each."""
