"""Counts the waits of a warp that follow one another: the shortest time of a kernel, apart from its bandwidth.

A warp issues its instructions in order. It waits where an instruction needs the result of a load that was issued after
the wait before:

    LDG R2 ..  LDG R4 ..  FADD R6, R2, R4        one wait: both loads are under way at the same time
    LDG R2 ..  LDG R4, [R2]  FADD R6, R4, R4     two waits: the address is a result

chain_of() counts the waits for global memory, and the block's barriers, on the longest path without a branch back: a
loop counts once. Waits for results of atomics, fences and completed copies are waits for global memory. The path
begins after the wait for earlier kernels (ACQBULK), if the kernel has one: earlier loads overlap with these kernels.
Functions that the kernel calls count where they are called.
"""
import re

LOADS = re.compile(r"(LDG?|LDL)(\.|$)")
ATOMICS = re.compile(r"ATOMG?(\.|$)")
STORES = re.compile(r"(STG?|STS|STL|RED|CCTL|LDGSTS|UBLKCP|BAR|MEMBAR|BRA|EXIT|RET|CALL)(\.|$)")
REGISTER = re.compile(r"\b(U?R|U?P)(\d+)\b")


def width_of(opcode):
    """Returns the number of registers of a loaded value."""
    return 4 if ".128" in opcode else 2 if ".64" in opcode else 1


class State:
    """Position of a warp at an instruction: counts on the longest path so far."""

    def __init__(self):
        self.waits = 0      # waits so far
        self.barriers = 0
        self.ready = {}     # {register: waits that its value needs, if more than so far}
        self.copies = []    # for each committed group of copies: waits that it needs
        self.open = 0       # the same, of the group that is not committed

    def copy(self):
        s = State()
        s.waits, s.barriers, s.copies, s.open = self.waits, self.barriers, list(self.copies), self.open
        s.ready = {r: n for r, n in self.ready.items() if n > s.waits}
        return s

    def join(self, other):
        """Merges the state of another path to the same instruction."""
        self.waits, self.barriers = max(self.waits, other.waits), max(self.barriers, other.barriers)
        for r, n in other.ready.items(): self.ready[r] = max(n, self.ready.get(r, 0))
        if len(other.copies) > len(self.copies): self.copies = list(other.copies)
        self.open = max(self.open, other.open)

    def need(self, n):
        self.waits = max(self.waits, n)


def registers_of(opcode, operands):
    """Returns the registers that an instruction reads, and the ones that it writes. Operands of tensor-core instructions
    and of wide stores are groups of registers."""
    names = [(kind, int(n)) for kind, n in REGISTER.findall(operands)]
    if STORES.match(opcode):
        group = width_of(opcode)
        return {(k, n + i) for k, n in names for i in range(group)}, set()
    wide = 4 if "MMA" in opcode else 2 if ".64" in operands else 1
    first = names[:1] if names and not operands.lstrip().startswith(("[", "desc")) else []
    rest = names[len(first):]
    while ATOMICS.match(opcode) and first and first[0][0] == "P" and rest: # the predicate, then the result
        first, rest = [rest[0]], rest[1:]
    written = {(k, n + i) for k, n in first for i in range(width_of(opcode))}
    return {(k, n + i) for k, n in rest for i in range(wide)}, written


def step(s, opcode, operands, predicate):
    """Executes one instruction."""
    reads, writes = registers_of(opcode, operands)
    if predicate: reads |= {(k, int(n)) for k, n in REGISTER.findall(predicate)}
    s.need(max((s.ready.get(r, 0) for r in reads), default=0))
    if opcode.startswith("ACQBULK"):
        s.waits = s.barriers = s.open = 0
        s.ready, s.copies = {}, []
    elif opcode.startswith("BAR."):
        s.barriers += 1
    elif opcode.startswith("MEMBAR") and not opcode.endswith("CTA"):
        s.waits += 1
    elif opcode.startswith(("LDGSTS", "UBLKCP")):
        s.open = s.waits + 1
    elif opcode.startswith("LDGDEPBAR"):
        s.copies.append(s.open)
    elif opcode.startswith("DEPBAR"):
        left = int((re.search(r"SB\d+, (0x[0-9a-f]+)", operands) or [0, "0x0"])[1], 16)
        done = s.copies[:len(s.copies) - left]
        s.copies = s.copies[len(done):]
        s.need(max(done, default=0))
    elif opcode.startswith("SYNCS") and "TRYWAIT" in opcode:
        s.need(s.open)
    value = s.waits + 1 if LOADS.match(opcode) or ATOMICS.match(opcode) else 0
    for r in writes:
        if value: s.ready[r] = value
        else: s.ready.pop(r, None)


def blocks_of(code, labels):
    """Returns {first index: (end index, [first indices of the next blocks])} of the basic blocks."""
    ends = re.compile(r"(EXIT|RET|BRA|BRX|BRXU|JMP)(\.|$)")
    starts = {0} | set(labels.values()) | {i + 1 for i, (o, _, _, _) in enumerate(code) if ends.match(o)}
    starts = sorted(i for i in starts if i < len(code))
    out = {}
    for first, end in zip(starts, starts[1:] + [len(code)]):
        opcode, operands, to, predicate = code[end - 1]
        to = [to] if to else re.findall(r"\.L_x_\d+", operands) if opcode.startswith("BRX") else []
        after = [labels[t] for t in to if labels.get(t, len(code)) < len(code)]
        # a branch with a predicate, or with an operand that is one, may not be taken
        falls = not ends.match(opcode) or predicate or (opcode.startswith("BRA") and re.match(r"\s*!?U?P\d", operands))
        out[first] = (end, after + ([end] if falls and end < len(code) else []))
    return out


def in_order(blocks):
    """Returns the reachable blocks so that each one is before its successors, except by branches back."""
    out, seen, stack = [], {0}, [(0, iter(blocks[0][1]))]
    while stack:
        block, rest = stack[-1]
        new = next((b for b in rest if b not in seen), None)
        if new is None:
            out.append(block)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(blocks[new][1])))
    return out[::-1]


def loop_of(blocks, head, last):
    """Returns the blocks of the loop that the branch back from `last` to `head` closes."""
    before, out, rest = {}, {head, last}, [last]
    for b, (_, after) in blocks.items():
        for n in after: before.setdefault(n, []).append(b)
    while rest:
        b = rest.pop()
        new = [] if b == head else [n for n in before.get(b, []) if n not in out]
        out.update(new)
        rest += new
    return out


def without_loops(blocks):
    """Returns {first index: [first indices of the next blocks]} of the reachable blocks, in the order of in_order(). A
    branch back continues after its loop."""
    place = {b: i for i, b in enumerate(in_order(blocks))}
    blocks = {b: blocks[b] for b in place}
    after = {b: [n for n in blocks[b][1] if place[n] > place[b]] for b in blocks}
    for last in blocks:
        for head in blocks[last][1]:
            if place[head] > place[last]: continue
            loop = loop_of(blocks, head, last)
            after[last] += [n for b in loop for n in after[b] if n not in loop]
    order = in_order({b: (0, after[b]) for b in blocks})
    place = {b: i for i, b in enumerate(order)}
    return {b: [n for n in after[b] if place[n] > place[b]] for b in order}


def chain_of(functions, name, known):
    """Returns (waits, barriers) of a function of sass.read(). known: {name: (waits, barriers)} of other files' functions,
    which gets the results of this file's functions."""
    if name in known: return known[name]
    known[name] = (0, 0)  # of a recursive call
    code, labels = functions[name]
    blocks = blocks_of(code, labels)
    states, end = {0: State()}, State()
    for b, after in without_loops(blocks).items():
        now = states.pop(b)
        for opcode, operands, _, predicate in code[b:blocks[b][0]]:
            step(now, opcode, operands, predicate)
            for callee in re.findall(r"\(([\w$]+)\)", operands) if opcode.startswith("CALL") else []:
                waits, barriers = chain_of(functions, callee, known) if callee in functions else known.get(callee, (0, 0))
                now.waits, now.barriers = now.waits + waits, now.barriers + barriers
            if opcode.startswith(("EXIT", "RET")): end.join(now)
        for n in after: states.setdefault(n, now.copy()).join(now)
    known[name] = (end.waits, end.barriers)
    return known[name]


def chains_of(functions):
    """Returns {mangled function: (waits, barriers)} for sass.read()'s functions. Functions of other files count nothing."""
    known = {}
    for name in functions: chain_of(functions, name, known)
    return known
