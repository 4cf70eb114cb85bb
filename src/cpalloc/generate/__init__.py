"""Synthetic rounds: realistic, self-consistent and repeatable, for tests, benchmarks and demonstrations."""

from cpalloc.generate.config import Family, GeneratorConfig
from cpalloc.generate.round import generate, generate_doc

__all__ = ["Family", "GeneratorConfig", "generate", "generate_doc"]
