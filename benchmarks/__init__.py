"""Timings that a person reads; no tests."""
