#!/usr/bin/env python3
"""Runs the fixtures of the package canitoolcall through the answer parser: see suite_canitoolcall.py."""
import sys

import suite_canitoolcall

if __name__ == "__main__":
    sys.exit(suite_canitoolcall.main())
