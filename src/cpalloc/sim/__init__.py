"""What if: replay a workload under a policy, event by event, and see what changes."""
