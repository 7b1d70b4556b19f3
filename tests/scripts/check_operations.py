#!/usr/bin/env python3
"""Checks what operators of pagedinfer serve use, with a tiny random model.

1. The log: one line per request with time, client, name of the key, path, status, tokens, times and trace; as text and
   as JSON; never the key itself.
2. Liveness and readiness: while loading, ready and draining.
3. packaging/grafana-dashboard.json and prometheus-rules.yml: each metric and label in them is in /metrics. promtool
   checks the rules and runs them, if it is installed or Debian's package `prometheus` can be downloaded.
4. The units: options that exist, paths of the installation.
Exit 77: there is no server, or no tiny model."""
import glob, json, os, re, shutil, signal, socket, subprocess, sys, tempfile, time

import check_server as base
from check_server import BUILD, Server, ask, connect, expect, fault, read_answer, request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
C = '/v1/completions'
BODY = {'prompt': 'abcdefgh' * 8, 'max_tokens': 3, 'ignore_eos': True}


def auth(key, *more): return f'Authorization: Bearer {key}\r\n' + ''.join(m + '\r\n' for m in more)


def lines(s, n, pattern):
    """Waits for n lines with the pattern in the log."""
    for _ in range(200):
        found = [l for l in s.text().split('\n') if re.search(pattern, l)]
        if len(found) >= n: return found
        time.sleep(0.02)
    fault(f'no {n} lines {pattern!r} in the log: {s.text()[-800:]!r}')
    return [''] * n


def log_text(model, folder):
    keys = os.path.join(folder, 'keys')
    with open(keys, 'w') as f: f.write('# KEY NAME\nsecret-a alice\n\nsecret-b\n')
    s = Server(model, '-c', '512', '--api-key-file', keys, '--unix-socket', os.path.join(folder, 's'), '--port', '0')
    for _ in range(2): expect('a request', ask(s, C, BODY, auth('secret-a', 'traceparent: ' + TRACE, 'x-request-id: first'))[0], 200)
    got = lines(s, 2, 'first')
    form = (r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z 127\.0\.0\.1:\d+ alice POST /v1/completions 200, prompt (\d+), cached (\d+)( \([^)]*\))?, '
            r'generated 3 at [\d.]+ t/s, ttft [\d.]+ s, total [\d.]+ s, length, cmpl-\w+, first, trace ' + TRACE)
    m = [re.fullmatch(form, l) for l in got]
    if not all(m): fault(f'a line of the log: {got}')
    else: expect('tokens in the log', (m[0][1] == m[1][1] != '0', m[0][2], m[1][2] != '0'), (True, '0', True))
    for i, bad in enumerate(('00-' + 'g' * 32 + TRACE[35:], TRACE.upper(), 'ff' + TRACE[2:], TRACE + '-', '00-' + '0' * 32 + TRACE[35:], TRACE[:36] + '0' * 16 + '-01', '')):
        ask(s, '/nothing', None, auth('secret-b', 'traceparent: ' + bad, f'x-request-id: bad-{i}'))
        line = lines(s, 1, f'bad-{i}$')[0]
        if not re.fullmatch(rf'\S+Z 127\.0\.0\.1:\d+ key-2 GET /nothing 404, total [\d.]+ s, bad-{i}', line): fault(f'{bad}: {line!r}')
    ask(s, '/v1/models', None, auth('secret-c', 'x-request-id: no-key'))
    if ' - GET /v1/models 401' not in lines(s, 1, 'no-key')[0]: fault(f'a wrong key: {lines(s, 1, "no-key")}')
    with socket.socket(socket.AF_UNIX) as c:
        c.connect(os.path.join(folder, 's'))
        c.sendall(request('POST', C, BODY, auth('secret-b', 'x-request-id: local')))
        read_answer(c.makefile('rb'))
    if ' unix key-2 POST ' not in lines(s, 1, 'local')[0]: fault(f'a unix socket: {lines(s, 1, "local")}')
    with open(keys, 'w') as f: f.write('secret-a carol\n')
    s.p.send_signal(signal.SIGHUP)
    s.wait_for('API keys reloaded: 1')
    ask(s, C, BODY, auth('secret-a', 'x-request-id: renamed'))
    if ' carol POST ' not in lines(s, 1, 'renamed')[0]: fault(f'a renamed key: {lines(s, 1, "renamed")}')
    with open(keys, 'w') as f: f.write('secret-a bad "name\n')
    s.p.send_signal(signal.SIGHUP)
    s.wait_for('not reloaded: the name of a key has')
    if 'secret' in s.text(): fault('a key is in the log')
    s.end()


def log_json(model):
    s = Server(model, '-c', '512', '--log-json', '--log-level', 'info')
    ask(s, C, BODY, f'traceparent: {TRACE}\r\nx-request-id: one\r\n')
    ask(s, '/props', None, 'x-request-id: two\r\n')
    rows = {json.loads(l)['request_id']: json.loads(l) for l in lines(s, 1, '"one"')[:1] + lines(s, 1, '"two"')[:1]}
    one, two = rows['one'], rows['two']
    want = {'client': True, 'key': '', 'method': 'POST', 'path': C, 'status': 200, 'traceparent': TRACE, 'completion_tokens': 3,
            'cached_tokens': 0, 'end': 'length'}
    for k, v in want.items():
        if k not in one or (v is not True and one[k] != v): fault(f'--log-json: {k}: {one}')
    if not one['prompt_tokens'] > 8 or not 0 < one['ttft_s'] <= one['total_s'] < 60: fault(f'--log-json: {one}')
    if not re.fullmatch(r'\d{4}-.*Z', one['time']): fault(f'--log-json: {one["time"]}')
    expect('--log-json', (two['method'], two['path'], two['status'], 'traceparent' in two), ('GET', '/props', 200, False))
    s.end()


def probes(model, folder):
    s = Server(model, '-c', '4096', '--parallel', '1', '--api-key', 'k', ready=False)
    expect('alive while loading', ask(s, '/livez')[0], 200)
    s.wait_for('is ready')
    for path in '/livez', '/health/live', '/readyz', '/health/ready', '/health':
        status, _, got = ask(s, path)
        expect(path, (status, got.get('status')), (200, 'ok'))
    c = connect(s, 60)
    c.sendall(request('POST', C, {'prompt': 'a', 'max_tokens': 3000, 'ignore_eos': True, 'stream': True}, auth('k')))
    c.recv(100)
    s.p.send_signal(signal.SIGTERM)
    s.wait_for('shutting down')
    expect('draining', [ask(s, p)[0] for p in ('/livez', '/health/live', '/readyz', '/health/ready', '/health')], [200, 200, 503, 503, 503])
    c.close()
    expect('exit status', s.p.wait(60), 0)
    slow = os.path.join(folder, 'slow.jinja')
    with open(slow, 'w') as f: f.write('{% for a in range(9999) %}{% for b in range(9999) %}{% if b < 0 %}x{% endif %}{% endfor %}{% endfor %}' * 20)
    s = Server(model, '-c', '512', '--chat-template-file', slow, '--hang-timeout', '0.05', '--prepare-timeout', '3')
    with connect(s) as c:
        c.sendall(request('POST', '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'a'}]}))
        s.until('pagedinfer:preparations_running', 1)
        time.sleep(0.3)
        expect('stuck work', [ask(s, p)[0] for p in ('/livez', '/readyz')], [503, 503])
        read_answer(c.makefile('rb'))
    expect('after it', ask(s, '/livez')[0], 200)
    s.end()


# ------------------------------------------------------------------------------------------------------- 3. monitoring

def promtool():
    found = shutil.which('promtool') or os.environ.get('PAGEDINFER_PROMTOOL')
    cache = os.path.join(os.environ.get('PAGEDINFER_CACHE', os.path.expanduser('~/.cache/pagedinfer')), 'prometheus')
    path = os.path.join(cache, 'usr/bin/promtool')
    if found or os.path.exists(path): return found or path
    if os.environ.get('PAGEDINFER_NO_PIP') or not shutil.which('apt-get') or not shutil.which('dpkg'): return None
    os.makedirs(cache, exist_ok=True)
    subprocess.run(['apt-get', 'download', '-q', 'prometheus'], cwd=cache, capture_output=True, timeout=300)
    for deb in glob.glob(os.path.join(cache, 'prometheus_*.deb')):
        subprocess.run(['dpkg', '-x', deb, cache], capture_output=True)
        os.unlink(deb)
    return path if os.path.exists(path) else None


FUNCTIONS = {'sum', 'rate', 'by', 'le', 'histogram_quantile', 'and', 'on', 'avg_over_time', 'label_values', 'up', 'job'}


def names_of(expr):
    """The metrics of an expression, and its labels."""
    expr = expr.replace('$__rate_interval', '5m').replace('${datasource}', '')
    labels = re.findall(r'([a-z_]+)\s*(?:=~|=|!=)\s*"', expr)
    for group in re.findall(r'\b(?:by|on)\s*\(([^)]*)\)', expr): labels += [l.strip() for l in group.split(',')]
    bare = re.sub(r'\{[^}]*\}|\[[^]]*\]|\b(?:by|on)\s*\([^)]*\)', '', expr)
    return set(re.findall(r'[a-z_]+:[a-z0-9_]+', bare)), set(labels)


def test_rules(tool, folder):
    rules = os.path.join(ROOT, 'packaging/prometheus-rules.yml')
    r = subprocess.run([tool, 'check', 'rules', rules], capture_output=True, text=True)
    if r.returncode: fault(f'promtool check rules: {r.stdout[-500:]} {r.stderr[-500:]}')
    at = 'instance="a", job="pagedinfer", model_name="m"'
    series = {f'up{{{at}}}': '0x60', f'pagedinfer:http_responses_total{{{at}, code="5xx"}}': '0+10x60',
              f'pagedinfer:http_responses_total{{{at}, code="2xx"}}': '0+90x60', f'vllm:num_requests_running{{{at}}}': '1x60',
              f'vllm:num_requests_waiting{{{at}}}': '20x60', f'vllm:generation_tokens_total{{{at}}}': '5x60', f'vllm:prompt_tokens_total{{{at}}}': '5x60',
              f'vllm:time_to_first_token_seconds_bucket{{{at}, le="10"}}': '0+1x60', f'vllm:time_to_first_token_seconds_bucket{{{at}, le="40"}}': '0+9x60',
              f'vllm:time_to_first_token_seconds_bucket{{{at}, le="+Inf"}}': '0+9x60', f'pagedinfer:cache_block_waits_total{{{at}}}': '0+60x60',
              f'vllm:kv_cache_usage_perc{{{at}}}': '1x60', f'vllm:num_preemptions_total{{{at}}}': '0+60x60',
              f'pagedinfer:connections_refused_total{{{at}}}': '0+1x60'}
    with open(rules) as f: alerts = re.findall(r'- alert: (\w+)', f.read())
    for broken in (True, False):
        text = f'rule_files: [{rules}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n'
        for name, values in series.items():
            if not broken:
                values = '1x60' if name.startswith('up') else '0+9x60' if 'le=' in name or '_tokens_' in name else '0x60' if 'refused' in name or '5xx' in name or \
                    'waits' in name or 'preempt' in name or 'waiting' in name else values
            text += f"      - series: '{name}'\n        values: '{values}'\n"
        text += '    promql_expr_test:\n      - expr: count(ALERTS{alertstate="firing"}) or vector(0)\n        eval_time: 30m\n        exp_samples:\n' \
                f"          - labels: '{{}}'\n            value: {len(alerts) if broken else 0}\n"
        path = os.path.join(folder, 'rules_test.yml')
        with open(path, 'w') as f: f.write(text)
        r = subprocess.run([tool, 'test', 'rules', path], capture_output=True, text=True)
        if r.returncode: fault(f'rules of a {"broken" if broken else "sound"} server: {r.stdout[-600:]} {r.stderr[-600:]}')


def monitoring(model, folder):
    s = Server(model, '-c', '512')
    for _ in range(2): ask(s, C, BODY)
    text = ask(s, '/metrics')[2].decode()
    s.end()
    metrics = set(re.findall(r'^([a-z0-9_:]+)[{ ]', text, re.M))
    labels = set(re.findall(r'[{,]([a-z_]+)="', text)) | {'instance', 'job'}
    with open(os.path.join(ROOT, 'packaging/grafana-dashboard.json')) as f: board = json.load(f)
    exprs = [(p['title'], t['expr']) for p in board['panels'] for t in p.get('targets', [])]
    for p in board['panels']:
        for t in p.get('targets', []):
            for label in re.findall(r'\{\{(\w+)\}\}', t['legendFormat']): exprs.append((p['title'], f'x{{{label}="1"}}'))
    exprs += [(v['name'], v['query']['query']) for v in board['templating']['list'] if isinstance(v['query'], dict)]
    with open(os.path.join(ROOT, 'packaging/prometheus-rules.yml')) as f: rules = f.read()
    found = re.findall(r'- alert: (\w+)\n +expr: (?:>-\n)?((?:.*\n)+?) +for:', rules)
    expect('alerts', len(found), rules.count('alert:'))
    for title, expr in exprs + found:
        used, with_labels = names_of(expr)
        for name in used - metrics: fault(f'{title}: {name} is not in /metrics')
        for label in with_labels - labels: fault(f'{title}: no metric has the label {label}')
    ids = [p['id'] for p in board['panels']]
    if len(ids) != len(set(ids)) or len(exprs) < 30: fault('the panels of the dashboard')
    tool = promtool()
    if not tool: return 'no promtool'
    with open(os.path.join(folder, 'metrics'), 'w') as f: f.write(text)
    with open(os.path.join(folder, 'metrics')) as f:  # 3: only findings of style
        r = subprocess.run([tool, 'check', 'metrics'], stdin=f, capture_output=True, text=True)
    if r.returncode not in (0, 3): fault(f'promtool check metrics: {r.stderr[-500:]}')
    for title, expr in exprs:
        if expr.startswith(('label_values', 'x{')): continue
        path = os.path.join(folder, 'expr.yml')
        with open(path, 'w') as f:
            json.dump({'groups': [{'name': 'x', 'rules': [{'record': 'x', 'expr': expr.replace('$__rate_interval', '5m')}]}]}, f)
        if subprocess.run([tool, 'check', 'rules', path], capture_output=True).returncode: fault(f'{title}: not PromQL: {expr}')
    test_rules(tool, folder)
    return f'{len(exprs)} expressions, {len(found)} alerts with promtool'


def packaging(model, folder):
    """Each variable of pagedinfer.conf and each key of models.ini is an option."""
    with open(os.path.join(ROOT, 'packaging/pagedinfer.conf')) as f: names = re.findall(r'^#(PAGEDINFER_\w+)=(.*)', f.read(), re.M)
    out = subprocess.run([base.BIN, 'serve', '--print-config'], env={**os.environ, **{k: v for k, v in names if 'CONFIG' not in k}}, capture_output=True, text=True)
    for k, v in names:
        if 'CONFIG' in k: continue
        name = k[11:].lower().replace('_', '-')
        if not re.search(rf'^{name} = .*; environment$', out.stdout, re.M): fault(f'pagedinfer.conf: {k} sets nothing: {out.stderr[-300:]}')
    ini = os.path.join(ROOT, 'packaging/models.ini')
    out = subprocess.run([base.BIN, 'serve', '--config', ini, '--print-config'], capture_output=True, text=True)
    if 'gemma' not in out.stdout or out.returncode: fault(f'models.ini: {out.stderr}')
    if not shutil.which('systemd-analyze'): return
    for name in 'pagedinfer.socket', 'pagedinfer.service':
        source = name if name.endswith('socket') else name + '.in'
        with open(os.path.join(ROOT, 'packaging', source)) as f: text = f.read().replace('@PAGEDINFER_BINDIR@/pagedinfer', '/bin/true')
        with open(os.path.join(folder, name), 'w') as f: f.write(text)
    r = subprocess.run(['systemd-analyze', 'verify', os.path.join(folder, 'pagedinfer.socket'), os.path.join(folder, 'pagedinfer.service')],
                       capture_output=True, text=True)
    if 'pagedinfer' in r.stderr and 'man ' not in r.stderr: fault(f'systemd-analyze verify: {r.stderr[-500:]}')


def main():
    maker = base.tiny_maker()
    if not maker: return 77
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, 'tiny.gguf')
        subprocess.run([maker, model, '8192'], check=True)
        log_text(model, folder)
        log_json(model)
        probes(model, folder)
        with_tool = monitoring(model, folder)
        packaging(model, folder)
    print(f'operations: {with_tool}, {len(base.faults)} faults')
    return 1 if base.faults else 0


if __name__ == '__main__': sys.exit(main())
