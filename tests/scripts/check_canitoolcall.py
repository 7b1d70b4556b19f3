#!/usr/bin/env python3
"""The fixtures of the package canitoolcall through the parser of answers: see suite_canitoolcall.py."""
import sys

import suite_canitoolcall

if __name__ == "__main__":
    sys.exit(suite_canitoolcall.main())
