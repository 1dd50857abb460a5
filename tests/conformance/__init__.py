"""The figures that the provider layer must reach, measured from one command: ``python -m tests.conformance``."""
