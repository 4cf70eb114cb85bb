"""Tests of shares and of the fills."""
