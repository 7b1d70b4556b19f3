#!/usr/bin/env python3
"""Checks `pagedinfer chat`: turns through a template, commands, reasoning flags, and a terminal with Ctrl-C, Ctrl-D,
Ctrl-Z and pastes.

    check_chat.py [PAGEDINFER]

Every answer must equal the answer of `run` to the conversation as the template renders it. Uses a tiny random model
that the script writes itself. Standard library only; PAGEDINFER_BIN names the tool if the argument is missing."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import check_cli
from check_cli import BIN, expect, faults

TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}.{% endfor %}"
            "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}{% if add_generation_prompt %}a:{% endif %}")
STATE = tempfile.TemporaryDirectory()  # of history files
GREEDY = ['-n', '6', '--ignore-eos', '--temp', '0']


def same(what, got, want):
    if got != want: faults.append(f'{what}: {got!r}, not {want!r}')


def continuation(model, prompt):
    return expect(0, 'run', '-m', model, '-p', prompt, '-sp', '--no-escape', *GREEDY).rstrip('\n').lstrip()


def turns(model, base):
    one = continuation(model, 'u:hi.a:')
    same('one turn', expect(0, *base, '-st', '-p', 'hi'), one + '\n')
    same('one line', expect(0, *base, '-st', stdin='hi\nmore\n'), one + '\n')
    two = continuation(model, f'u:hi.a:{one}.u:the.a:')
    same('two turns', expect(0, *base, stdin='hi\nthe\n'), f'{one}\n{two}\n')
    same('first by -p', expect(0, *base, '-p', 'hi', stdin='the'), f'{one}\n{two}\n')
    with_system = continuation(model, 's:be\nkind.u:hi.a:')
    same('system prompt', expect(0, *base, '-sys', 'be\\nkind', '-st', '-p', 'hi'), with_system + '\n')
    long = continuation(model, 'u:a\nb.a:')
    same('continued line', expect(0, *base, stdin='a\\\nb\n'), long + '\n')
    same('empty lines', expect(0, *base, stdin='\n\nhi\n\n'), one + '\n')
    expect(0, *base, stdin='the ' * 20 + '\nthe\n', err='cached')


def commands(model, base, folder):
    one = continuation(model, 'u:hi.a:')
    system = ['-sys', 'x']
    cleared = continuation(model, 's:x.u:hi.a:')
    same('/regen', expect(0, *base, stdin='hi\n/regen\n'), f'{one}\n{one}\n')
    same('/clear', expect(0, *base, *system, stdin='hi\n/clear\nhi\n'), f'{cleared}\n{cleared}\n')
    same('/exit', expect(0, *base, stdin='hi\n/exit\nhi\n'), one + '\n')
    same('unknown', expect(0, *base, stdin='/nothing\nhi\n', err='Unknown command /nothing'), one + '\n')
    same('/regen at first', expect(0, *base, stdin='/regen\n', err='No message to answer'), '')
    path = os.path.join(folder, 'text')
    with open(path, 'w', encoding='utf-8') as f: f.write('a')
    same('/read', expect(0, *base, stdin=f'/read {path}\nb\n'), continuation(model, 'u:a\nb.a:') + '\n')
    expect(0, *base, stdin=f'/read {path}.gone\n', err='gone')
    same('/system', expect(0, *base, stdin='/system x\nhi\n'), cleared + '\n')
    same('/system twice', expect(0, *base, *system, stdin='/system  \n/system x \nhi\n'), cleared + '\n')
    same('no /system', expect(0, *base, *system, stdin='/system\nhi\n', err='system prompt is removed'), one + '\n')
    same('/image', expect(0, *base, stdin='/image x.png\nhi\n', err='reads no images'), one + '\n')
    same('//', expect(0, *base, stdin='//hi\n'), continuation(model, 'u:/hi.a:') + '\n')
    same('/read alone', expect(0, *base, stdin='/read\n/clear all\n', err='needs a file name'), '')
    same('cut short', expect(0, *base, stdin='a\\\nb\\\n'), continuation(model, 'u:a\nb.a:') + '\n')
    same('-mli', expect(0, *base, '-mli', stdin='a\nb\\\n/exit\n'), continuation(model, 'u:a\nb.a:') + '\n')


def saved(model, base, folder):
    """A saved and reloaded conversation continues like one that never ended."""
    one = continuation(model, 'u:hi.a:')
    two = continuation(model, f'u:hi.a:{one}.u:the.a:')
    path = os.path.join(folder, 'saved.json')
    expect(0, *base, stdin=f'hi\n/save {path}\n', err='2 messages')
    with open(path, encoding='utf-8') as f: messages = json.load(f)
    same('/save', messages, [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': one}])
    same('/load', expect(0, *base, stdin=f'/load {path}\nthe\n', err='2 messages'), two + '\n')
    same('/load, /regen', expect(0, *base, stdin=f'/load {path}\n/regen\n'), one + '\n')
    with open(path, 'w', encoding='utf-8') as f: json.dump({'messages': messages, 'model': 'x'}, f)
    same('as a request', expect(0, *base, stdin=f'/load {path}\nthe\n'), two + '\n')
    for text, why in (('[{', 'line 1'), ('{}', 'not an array'), ('[1]', 'no role'), ('[{"role": "user", "content": [1]}]', 'neither text nor'),
                      ('[{"role": "user"}]', 'neither text nor'), ('\xff', 'line 1')):
        with open(path, 'w', encoding='latin-1') as f: f.write(text)
        same(f'/load {text}', expect(0, *base, stdin=f'/load {path}\nhi\n', err=why), one + '\n')
    refuses = ['chat', '-m', model, '--chat-template', TEMPLATE + "{% if messages[0].content == 'no' %}{{ raise_exception('No.') }}{% endif %}", *GREEDY]
    with open(path, 'w', encoding='utf-8') as f: f.write('[{"role": "user", "content": "no"}]')
    same('/load refused', expect(0, *refuses, stdin=f'/load {path}\nhi\n', err='No.'), one + '\n')
    expect(0, *base, stdin=f'/load {path}.gone\n/save {folder}\n', err='gone')


def broken_text(model, base, folder):
    """Input that is not UTF-8 is reported, and the conversation continues."""
    one = continuation(model, 'u:hi.a:')
    for line in b'\xff', b'the \xe6\x97', b'\xed\xa0\x80', b'\xc0\xaf', b'\xf4\x90\x80\x80', b'a\\\nb\x80':
        same(f'{line!r}', expect(0, *base, stdin=line + b'\nhi\n', err='is not UTF-8'), one + '\n')
    whole = 'h\u00e9\u20ac\U0001f600'
    same('whole characters', expect(0, *base, stdin=whole, no_err='UTF-8'), continuation(model, f'u:{whole}.a:') + '\n')
    path = os.path.join(folder, 'latin1')
    with open(path, 'wb') as f: f.write(b'caf\xe9\n')
    same('/read', expect(0, *base, stdin=f'/read {path}\nhi\n', err='latin1: byte 3 (0xE9)'), one + '\n')
    broken = os.fsdecode(b'a\xff')
    expect(65, *base, '-p', broken, err='the prompt: byte 1')
    expect(65, *base, '-sys', broken, '-p', 'hi', err='the system prompt: byte 1')


def options(model, base, folder):
    thinks = continuation(model, 'u:hi.Falsea:')
    for flags in (['--reasoning', 'off'], ['--reasoning-budget', '0'],
                  ['--chat-template-kwargs', '{"enable_thinking": false}']):
        same(str(flags), expect(0, *base, *flags, '-st', '-p', 'hi'), thinks + '\n')
    same('--reasoning on', expect(0, *base, '-rea', 'on', '-st', '-p', 'hi'), continuation(model, 'u:hi.Truea:') + '\n')
    same('a budget of thought', expect(0, *base, '--reasoning-budget', '5', '-st', '-p', 'hi'), continuation(model, 'u:hi.a:') + '\n')
    same('--jinja', expect(0, *base, '--jinja', '-cnv', '-st', '-p', 'hi'), continuation(model, 'u:hi.a:') + '\n')
    path = os.path.join(folder, 'chat.jinja')
    with open(path, 'w', encoding='utf-8') as f: f.write(TEMPLATE)
    file = ['chat', '-m', model, '--chat-template-file', path, *GREEDY]
    same('template file', expect(0, *file, '-st', '-p', 'hi'), continuation(model, 'u:hi.a:') + '\n')
    expect(66, 'chat', '-m', model, '--chat-template-file', path + '.gone', '-p', 'x', err='gone')
    expect(78, 'chat', '-m', model, '--chat-template', '{% if %}', '-p', 'x', err='line 1')
    expect(78, *base, '-p', 'x' * 9000, '-st', err='4096')
    expect(78, 'chat', '-m', model, '--chat-template', "{{ raise_exception('No.') }}", '-p', 'x', err='No.')
    # Without a template the prompt is completed without one, unless the user asked for a conversation (-cnv).
    bare = ['chat', '-m', model, *GREEDY]
    same('no template', expect(0, *bare, '-p', 'hi', err='no chat template'), expect(0, 'run', '-m', model, '-p', 'hi', *GREEDY))
    same('-no-cnv', expect(0, *base, '-no-cnv', '-p', 'hi'), expect(0, 'run', '-m', model, '-p', 'hi', *GREEDY))
    expect(69, *bare, '-cnv', '-p', 'hi', err='no chat template')
    expect(64, 'chat', '-p', 'hi', err='no model')


def looks(model):
    """Reasoning is dimmed when colours are on. --color decides; the default is on for a terminal."""
    thinks = ['chat', '-m', model, '--chat-template', TEMPLATE + '<think>', '-st', '-p', 'hi', *GREEDY]
    expect(0, *thinks, '--color', 'on', err='\x1b[2m')
    expect(0, *thinks, '-co', err='\x1b[0m')
    expect(0, *thinks, no_err='\x1b')
    expect(0, *thinks, '--reasoning-format', 'hidden', '-co', no_err='\x1b')
    t = Terminal('chat', '-m', model)  # no template: the error names the remedy
    t.wait_for(b'no chat template')
    t.wait_for(b'--chat-template')
    t.end(69)


class Terminal:
    """Runs the tool on a pseudo-terminal of its own; standard output goes to a pipe."""

    def __init__(self, *args, term='dumb'):
        self.master, slave = pty.openpty()
        self.slave = os.dup(slave)
        self.modes = termios.tcgetattr(slave)
        self.seen = b''
        env = {k: v for k, v in os.environ.items() if not k.startswith(('LLAMA_', 'PAGEDINFER_'))}
        self.p = subprocess.Popen([BIN, *args], stdin=slave, stdout=subprocess.PIPE, stderr=slave,
                                  env={**env, 'TERM': term, 'NO_COLOR': '1', 'XDG_STATE_HOME': STATE.name}, start_new_session=True)
        os.close(slave)

    def wait_for(self, text, n=1):
        end = time.time() + 60
        while (len(text.findall(self.seen)) if isinstance(text, re.Pattern) else self.seen.count(text)) < n:
            if time.time() > end or not select.select([self.master], [], [], max(0, end - time.time()))[0]:
                faults.append(f'terminal: no {text!r} in {self.seen[-300:]!r}')
                return
            try:
                self.seen += os.read(self.master, 4096)
            except OSError:
                faults.append(f'terminal: ended without {text!r}: {self.seen[-300:]!r}')
                return

    def type(self, text):
        os.write(self.master, text)

    def end(self, code):
        try:
            out = self.p.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            self.p.kill()
            out = self.p.communicate()[0]
            faults.append(f'terminal: does not end: {self.seen[-300:]!r}')
        if termios.tcgetattr(self.slave) != self.modes: faults.append(f'terminal: left in other modes: {self.seen[-300:]!r}')
        while select.select([self.master], [], [], 0)[0]: self.seen += os.read(self.master, 4096)
        if self.seen.count(b'\033[?2004h') != self.seen.count(b'\033[?2004l'): faults.append('terminal: pastes stay bracketed')
        os.close(self.slave)
        os.close(self.master)
        if self.p.returncode != code: faults.append(f'terminal: exit {self.p.returncode}, not {code}: {self.seen[-300:]!r}')
        return out


def terminal(model):
    chat = ['chat', '-m', model, '--chat-template', TEMPLATE, '--temp', '0', '--ignore-eos', '--no-perf']
    t = Terminal(*chat, '-n', '6')
    t.wait_for(b'> ')
    t.type(b'hi\n')
    t.wait_for(b'> ', 2)
    t.type(b'/exit\n')
    same('on a terminal', t.end(0).decode(), continuation(model, 'u:hi.a:') + '\n')

    t = Terminal(*chat)  # the answer is endless: SIGINT ends it, and the conversation continues
    t.wait_for(b'> ')
    t.type(b'hi\n')
    first = t.p.stdout.read(1)
    t.p.send_signal(signal.SIGINT)
    t.wait_for(b'> ', 2)
    t.type(b'/clear\n')
    t.wait_for(b'is empty')
    t.wait_for(b'> ', 3)
    t.type(b'\x04')
    if not (first + t.end(0)).endswith(b'\n'): faults.append('terminal: an answer that was ended has no newline')

    t = Terminal(*chat)
    t.wait_for(b'> ')
    t.p.send_signal(signal.SIGINT)
    t.end(130)

    t = Terminal(*chat)
    t.wait_for(b'> ')
    t.type(b'hi\n')
    t.p.stdout.read(1)
    t.p.send_signal(signal.SIGTERM)
    t.end(143)

    for sig in signal.SIGHUP, signal.SIGQUIT:
        t = Terminal(*chat)
        t.wait_for(b'> ')
        t.p.send_signal(sig)
        t.end(-sig)
    t = Terminal(*chat)  # input that arrives while the model loads waits
    t.type(b'hi\n')
    t.p.stdout.read(1)
    t.p.send_signal(signal.SIGTERM)
    t.end(143)


def typing(model, *simple):
    """Pastes, and keys typed before the prompt appears, with and without libedit."""
    chat = ['chat', '-m', model, '--chat-template', TEMPLATE, '--temp', '0', '--ignore-eos', '--no-perf', '-n', '6', *simple]
    one = continuation(model, 'u:hi.a:')
    several = continuation(model, 'u:one\ntwo\nthree!.a:')
    paste = b'\033[200~one\r\ntwo\rthree\033[201~!\r'
    t = Terminal(*chat, term='xterm')
    t.wait_for(b'> ')
    t.type(paste)
    t.wait_for(b'> ', 3)  # the prompt is drawn twice while typing, and once after the answer
    t.type(b'\004')
    same(f'paste {simple}', t.end(0).decode(), several + '\n')

    t = Terminal(*chat, term='xterm')  # a paste that looks like a command is not a command
    t.wait_for(b'> ')
    t.type(b'\033[200~/exit\n/exit\033[201~\r\004')
    same(f'slash {simple}', t.end(0).decode(), continuation(model, 'u:/exit\n/exit.a:') + '\n')

    # All input is sent in one write: the tool reads each line only after the previous answer.
    for term, sign in ('xterm', b'\033[?2004h'), ('dumb', b'Type a'):
        t = Terminal(*chat, term=term)
        t.wait_for(sign)
        t.type(b'hi\rthe\r\004never\r')
        two = continuation(model, f'u:hi.a:{one}.u:the.a:')
        same(f'typed ahead {simple}', t.end(0).decode(), f'{one}\n{two}\n')

    # The answer is endless: Ctrl-C and then Ctrl-D end it.
    t = Terminal(*chat[:-2 - len(simple)], *simple, term='xterm')
    t.wait_for(b'> ')
    t.type(b'hi\r')
    first = t.p.stdout.read(1)
    t.type(b'\004')
    t.p.send_signal(signal.SIGINT)
    if not (first + t.end(0)).endswith(b'\n'): faults.append('terminal: an answer that was ended has no newline')

    t = Terminal(*chat, term='xterm')
    t.wait_for(b'> ')
    t.type(b'\xc3\xa9i\033[H\033[Cx\177\033[3~\177h\033[Fi\r')
    t.wait_for(b'\n', 3)
    t.type(b'\033[A\r\004')
    two = continuation(model, f'u:hi.a:{one}.u:hi.a:')
    same(f'arrows {simple}', t.end(0).decode(), f'{one}\n{two}\n')


def history(model, folder, *simple):
    """Lines are kept in a private file for the next conversation, also those that Ctrl-C interrupts. The banner names the
    model and its context."""
    file = os.path.join(folder, 'kept')
    chat = ['chat', '-m', model, '--chat-template', TEMPLATE, '--temp', '0', '--ignore-eos', '--no-perf', '-n', '6', '-c', '512',
            '--history-file', file, *simple]
    one = continuation(model, 'u:hi.a:')
    t = Terminal(*chat, term='xterm')
    t.wait_for(b'context of 512 tokens')
    t.wait_for(b'> ')
    if b'tiny, gemma3' not in t.seen: faults.append(f'banner: {t.seen!r}')
    prompt = re.compile(rb'\n> |> \r\x1b\[2C')  # of an empty line, in both editors; a line with text is drawn differently
    t.type(b'hi\r')
    t.wait_for(prompt, 2)
    t.type(b'long')
    t.wait_for(b'long')
    t.p.send_signal(signal.SIGINT)  # the text is kept, and the conversation goes on
    t.wait_for(b'arrow up brings it back')
    t.wait_for(prompt, 3)
    t.type(b'\033[A text\r')
    long = continuation(model, f'u:hi.a:{one}.u:long text.a:')
    t.wait_for(prompt, 4)
    t.type(b' secret\r')
    t.wait_for(prompt, 5)
    t.p.send_signal(signal.SIGINT)
    out = t.end(130).decode()
    if not out.startswith(f'{one}\n{long}\n'): faults.append(f'Ctrl-C with typed text {simple}: {out!r}')
    with open(file, encoding='utf-8') as f: kept = [json.loads(l) for l in f]
    same(f'history {simple}', kept, ['hi', 'long', 'long text'])
    same('its mode', os.stat(file).st_mode & 0o7777, 0o600)
    t = Terminal(*chat, term='xterm')  # another process
    t.wait_for(b'> ')
    t.type(b'\033[A\033[A\033[A\r\004')
    same(f'an earlier line {simple}', t.end(0).decode(), one + '\n')
    for value, text in ((folder, b'not a regular file'), ('none', b'> ')):
        t = Terminal(*chat, '--history-file', value, term='xterm')
        t.wait_for(text)
        t.type(b'hi\r\004')
        same(f'--history-file {value}', t.end(0).decode(), one + '\n')
    os.unlink(file)


def rendered(model, folder):
    """On a terminal an answer's words wrap at its width, and Markdown is shown; --no-markdown prints the text."""
    letters = 'the ' * 40
    stop = ['-n', '40']
    def shown(*flags, color='1', columns=30):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
        env = {k: v for k, v in os.environ.items() if k != 'NO_COLOR'}
        p = subprocess.Popen([BIN, 'chat', '-m', model, '--chat-template', TEMPLATE, '--temp', '0', '--no-perf', '-st', '-p', letters, *stop,
                              '--ignore-eos', *flags], stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.DEVNULL, env={**env, 'TERM': 'xterm'})
        os.close(slave)
        seen = b''
        while select.select([master], [], [], 60)[0]:
            try: seen += os.read(master, 4096)
            except OSError: break
        os.close(master)
        if p.wait(): faults.append(f'chat on a terminal: {p.returncode}')
        return seen.decode(errors='replace').replace('\r\n', '\n')
    grammar = ['--grammar', 'root ::= "# T\\n**bold** words in a line that is longer than the terminal\\n- x\\n"']
    plain = '# T\n**bold** words in a line that is longer than the terminal\n- x\n'
    stop[:] = ['-n', '120']
    same('--no-markdown', shown(*grammar, '--no-markdown').strip(), plain.strip())
    same('Markdown', shown(*grammar).strip(), '\033[0;1;4mT\033[0m\n\033[0;1mbold\033[0m words in a line that is\nlonger than the terminal\n\u2022 x')
    same('without colors', shown(*grammar, '--color', 'off').strip(), '# T\n**bold** words in a line that\nis longer than the terminal\n- x')
    same('a pipe', expect(0, 'chat', '-m', model, '--chat-template', TEMPLATE, '-st', '-p', 'x', *stop, *grammar), plain + '\n')


def suspended(model):
    """Ctrl-Z restores the terminal modes for the shell, and fg sets the tool's modes again."""
    script = ('set -m; before=$(stty -g); "$@"; code=$?; [ "$(stty -g)" = "$before" ] && echo restored $code; '
              'fg >/dev/null; echo done $?; [ "$(stty -g)" = "$before" ] && echo again')
    pid, master = pty.fork()
    if not pid:
        os.environ.update(TERM='xterm', NO_COLOR='1', XDG_STATE_HOME=STATE.name)
        os.execvp('bash', ['bash', '-c', script, 'bash', BIN, 'chat', '-m', model, '--chat-template', TEMPLATE, '--no-perf', *GREEDY])
    seen = b''
    steps = [(b'> ', b'h'), (b'h', b'\x1a'), (b'restored', b''), (b'> h', b'i\r'), (b'> ', b'\004'), (b'again', b'')]
    end = time.time() + 60
    at = 0
    while steps and time.time() < end:
        if not select.select([master], [], [], 1)[0]: continue
        try: seen += os.read(master, 4096)
        except OSError: break
        while steps and steps[0][0] in seen[at:]:
            at += seen[at:].index(steps[0][0]) + len(steps[0][0])
            os.write(master, steps.pop(0)[1])
    if steps or b'restored 148' not in seen or b'done 0' not in seen: faults.append(f'suspended: {steps} {seen!r}')
    os.close(master)
    os.waitpid(pid, 0)


def greedy(model, folder, ids, n=6):
    """Returns the n greedy tokens after ids, and their text."""
    cases = os.path.join(folder, 'cases.json')
    with open(cases, 'w', encoding='utf-8') as f: json.dump([{'name': 'x', 'ids': ids, 'n': n}], f)
    got = json.loads(expect(0, 'eval', '-m', model, '--cases', cases, '--ignore-eos'))['greedy']
    pieces = [' '] + [chr(c) for c in range(ord('a'), ord('z') + 1)] + ['th', 'the', ' the']
    data = b''.join(bytes([i - 4]) if i < 260 else pieces[i - 260].encode() for i in got)
    return got, data.decode('utf-8', 'replace')


def interactive(model, folder):
    """run -i: the context is the prompt, the generated text, and the user's lines between prefix and suffix."""
    def ids(text): return [261 + ord(c) - ord('a') if c != ' ' else 260 for c in text]
    run = ['run', '-m', model, '--no-perf', '-c', '512', *GREEDY]
    text = [2] + ids('zz')
    first, a = greedy(model, folder, text)
    text += first + ids('pq') + ids('x') + ids('s')
    second, b = greedy(model, folder, text)
    third, c = greedy(model, folder, text + second)
    talk = [*run, '-i', '-p', 'zz', '--in-prefix', 'p\\x71', '--in-suffix', 's']
    same('-i', expect(0, *talk, stdin='x\n\n'), f'zz{a}pqs{b}pq{c}pq\n')
    same('-i, prompt not shown', expect(0, *talk, '--no-display-prompt', stdin=''), f'{a}pq\n')
    fourth, d = greedy(model, folder, [2] + ids('zz') + ids('y'))
    same('-if', expect(0, *run, '-if', '-p', 'zz', stdin='y\n'), f'zz{d}\n')
    same('-r ends the prompt', expect(0, *run, '-i', '-p', 'zz', '-r', 'z', stdin='y\n').split(d)[0], 'zz')
    bos, e = greedy(model, folder, [2] + ids('zz') + [2] + ids('y'))
    same('--in-prefix-bos', expect(0, *run, '-if', '-p', 'zz', '--in-prefix-bos', stdin='y\n'), f'zz{e}\n')
    lines, g = greedy(model, folder, [2] + ids('zz') + ids('y') + [14] + ids('y'))
    same('continued', expect(0, *run, '-if', '-p', 'zz', stdin='y\\\ny\n'), f'zz{g}\n')
    same('-mli', expect(0, *run, '-if', '-p', 'zz', '-mli', stdin='y\ny\\\n'), f'zz{g}\n')
    # A reverse prompt is printed, stays in the context, and passes control to the user.
    stop = next((ch for ch in a if ch.isalpha()), None)
    if stop:
        out = expect(0, *run, '-i', '-p', 'zz', '-r', stop, stdin='')
        same('reverse prompt', out, 'zz' + a[:a.index(stop) + 1] + '\n')
        same('with escapes', expect(0, *run, '-i', '-p', 'zz', '-r', f'\\x{ord(stop):02x}', stdin=''), out)
        same('without', expect(0, *run, '-i', '-p', 'zz', '-r', f'\\x{ord(stop):02x}', '--no-escape', stdin=''), f'zz{a}\n')
    same('nothing typed', expect(0, *run, '-i', stdin=''), '')
    expect(64, *run, '-i', '--copies', '2', err='--copies')
    # On a terminal the user types after the printed text; Ctrl-C interrupts generation for the user's next line.
    for simple in [], ['--simple-io']:
        master, slave = pty.openpty()
        p = subprocess.Popen([BIN, 'run', '-m', model, '--temp', '0', '--ignore-eos', '-if', '-p', 'zz', *simple], stdin=slave,
                             stdout=slave, stderr=slave, env={**os.environ, 'TERM': 'xterm', 'NO_COLOR': '1'}, start_new_session=True)
        os.close(slave)
        seen = b''
        steps = [(b'zz', b'y\r'), (d.encode()[-3:], None), (b'', b'\004')]
        end = time.time() + 60
        while steps and time.time() < end:
            if not select.select([master], [], [], 1)[0]: continue
            try: seen += os.read(master, 4096)
            except OSError: break
            while steps and (steps[0][0] in seen.split(b'y', 1)[-1]):
                key = steps.pop(0)[1]
                if key: os.write(master, key)
                else: p.send_signal(signal.SIGINT)
        while select.select([master], [], [], 60)[0]:
            try: seen += os.read(master, 4096)
            except OSError: break
        plain = re.sub(rb'\033\[[?0-9]*[A-Za-z]|\r', b'', seen)
        if p.wait() or b'zzy\n' + d.encode()[:4] not in plain: faults.append(f'-i on a terminal {simple}: {p.returncode} {seen[:300]!r}')
        os.close(master)


def logs(model):
    """On a terminal a log line starts on a line of its own. Elsewhere the log adds no newline to the answer."""
    args = ['run', '-m', model, '-p', 'hi', '-lv', '3', '--no-perf', *GREEDY]
    master, slave = pty.openpty()
    p = subprocess.Popen([BIN, *args], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b''
    while select.select([master], [], [], 60)[0]:
        try: seen += os.read(master, 4096)
        except OSError: break
    os.close(master)
    if p.wait() or b'\r\nrequest 1:' not in seen: faults.append(f'log lines on a terminal: {seen!r}')
    same('answer', expect(0, *args, err='request 1:'), continuation(model, 'hi') + '\n')


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        check_cli.write_model(model)
        base = ['chat', '-m', model, '--chat-template', TEMPLATE, *GREEDY]
        start = time.time()
        turns(model, base)
        commands(model, base, folder)
        saved(model, base, folder)
        broken_text(model, base, folder)
        options(model, base, folder)
        looks(model)
        terminal(model)
        typing(model)
        typing(model, '--simple-io')
        history(model, folder)
        history(model, folder, '--simple-io')
        rendered(model, folder)
        suspended(model)
        logs(model)
        interactive(model, folder)
    for f in faults: print(f)
    print(f'chat: {len(faults)} faults, {time.time() - start:.1f} s')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
