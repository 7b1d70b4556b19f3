"""Checks whose kernels from C++ and from PTX left the same bytes. For tools/kernel_ptx.py.

BUILD/ptx/TARGET/agreed.json has, for each check that passed: the kernels that it launched, its processor time, and a
hash of everything that its result depends on:

- the PTX of these kernels, of the functions and variables that they name, and of nvcc's expf and others. So a change
  of a file that leaves the PTX of a kernel as it was runs nothing again;
- the files that launch them (launch_*.cu and launch*.cuh);
- the check (src/selftest) and the emulator (tests/simt).

Kernels from C++ are not part of the hash: the tests of the Release build run the same checks with them. Neither is
other host code. If it selects other kernels for a check than before, remove BUILD/ptx/TARGET/agreed.json.
"""
import hashlib
import json
import re
import threading

from nvcc import ROOT, stored, without_file

SYMBOL = re.compile(r"^(?:\.\w+\s+)*\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)[^{;]*(?:;|\{.*?^\})|"
                    r"^(?:\.\w+\s+)*\.(?:global|const|shared)\s[^=;[]*?([\w$]+)\s*(?:\[[^=;]*)?(?:=[^;]*)?;", re.M | re.S)
WORD = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")


def hash_of(parts):
    h = hashlib.sha256()
    for p in parts: h.update(p.encode() if isinstance(p, str) else p), h.update(b"\0")
    return h.hexdigest()


def hash_of_files(paths): return hash_of(x for p in sorted(paths) for x in (p.name, p.read_bytes()))


def plain(text):
    """Returns PTX without comments, and without the names and numbers that depend on other parts of its file."""
    text = re.sub(r"//.*", "", text)
    return re.sub(r"\$L__BB\d+_|__local_depot\d+", "$L", without_file(text))


def symbols_of(text):
    """Yields the name and the text of each function and each variable of a module."""
    for m in SYMBOL.finditer(plain(text)): yield m[1] or m[2], m[0]


class modules:
    """The functions and variables of all PTX files in a folder, by name. Equal names of different files are one."""

    def __init__(self, folder):
        self.texts, self.uses, self.files = {}, {}, {}
        for path in sorted(folder.glob("*.ptx")):
            for name, text in symbols_of(path.read_text()):
                self.texts.setdefault(name, set()).add(hash_of([text]))
                self.uses.setdefault(name, set()).update(WORD.findall(text))
                self.files.setdefault(name, set()).add(path.stem)

    def reached(self, names):
        """Returns the names, and all that their texts name, directly or not."""
        found, todo = set(), list(names)
        while todo:
            if (name := todo.pop()) in found or name not in self.texts: continue
            found.add(name)
            todo += self.uses[name]
        return found

    def hash_of(self, kernels):
        """Returns a hash of kernels and of what they use. A kernel may be missing: its name is part of the hash."""
        math = [n for n, stems in self.files.items() if "device_math" in stems]
        names = sorted(self.reached([*kernels, *math]).union(kernels))
        parts = [x for n in names for x in (n, *sorted(self.texts.get(n, ["missing"])))]
        cuda, stems = ROOT / "src" / "backend" / "cuda", {s for k in kernels for s in self.files.get(k, ())}
        hosts = {cuda / f"{s}.cu" for s in stems} | set(cuda.glob("launch*.cuh"))
        return hash_of([*parts, hash_of_files(p for p in hosts if p.exists())])


class record:
    """Threads: add() may be called by several."""

    def __init__(self, build, folder, mode):
        self.path, self.mode, self.lock = stored(build, folder, "agreed", ".json"), " ".join(mode), threading.Lock()
        self.modules = modules(self.path.parent)
        try: self.all = json.loads(self.path.read_text())
        except (OSError, ValueError): self.all = {}
        simt = ROOT / "tests" / "simt"
        self.emulator = hash_of_files(p for d in (simt, simt / "ptx") for p in d.iterdir()
                                      if p.suffix in (".cpp", ".h", ".cu") and not p.name.startswith("test_"))

    def key(self, check): return f"{self.mode} {check}".strip()

    def hash_of(self, check, kernels):
        selftest = ROOT / "src" / "selftest"
        check_files = [selftest / f"check_{check.split('.')[0]}.cpp", *selftest.glob("*.h")]
        return hash_of([self.emulator, hash_of_files(check_files), self.modules.hash_of(kernels)])

    def holds(self, check):
        """True if the check passed, and nothing that its result depends on has changed."""
        old = self.all.get(self.key(check))
        return bool(old) and old["hash"] == self.hash_of(check, old["kernels"])

    def seconds(self, check): return self.all.get(self.key(check), {}).get("seconds", 10)

    def add(self, check, seconds, kernels):
        with self.lock:
            self.all[self.key(check)] = {"hash": self.hash_of(check, kernels), "seconds": seconds, "kernels": kernels}
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.all, indent=0))
            new.rename(self.path)
