#!/usr/bin/env python3
"""Checks files for deployment: deploy/helm, deploy/kubernetes, the Dockerfiles, and versions in packaging files.

    check_deploy.py [--write]

1. Versions in debian/changelog, the RPM spec and the chart equal the header's.
2. The chart passes Helm's lint (strict), renders for several sets of values, and its schema refuses wrong values.
   PyPI's helm-python-sdk is Helm's own code.
3. deploy/kubernetes/pagedinfer.yaml is the chart's rendering with its default values; --write updates the file.
4. Rendered objects satisfy the schemas of Kubernetes (PyPI's kubernetes-validate), and the tool accepts their arguments.
   The InferencePool satisfies the rules of its resource definition from v1.0 to v1.6, which are in POOL and pool_faults.
5. hadolint accepts the Dockerfiles, if it is installed.
Exit 77: PyYAML, helm-python-sdk or kubernetes-validate is missing; versions are checked before."""
import os, re, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get('PAGEDINFER_BUILD', os.path.join(ROOT, 'build'))
BIN = os.environ.get('PAGEDINFER_BIN', os.path.join(BUILD, 'pagedinfer'))
CHART, OUT = os.path.join(ROOT, 'deploy/helm/pagedinfer'), os.path.join(ROOT, 'deploy/kubernetes/pagedinfer.yaml')
HEAD = '''# The objects of deploy/helm/pagedinfer with its default values, for kubectl apply -f. Written by
# tests/scripts/check_deploy.py --write.
'''
KUBERNETES = '1.30'
VALUES = [
    {},
    {'autoscaling': {'enabled': False}, 'replicas': 3, 'kvEvents': {'enabled': False}},
    {'storage': {'existingClaim': 'shared'}, 'apiKeysSecret': 'keys', 'inferencePool': {'enabled': True}},
    {'resources': {'limits': {'nvidia.com/gpu': 1}}, 'nodeSelector': {'gpu': 'h200'}, 'tolerations': [{'key': 'gpu', 'operator': 'Exists'}],
     'storage': {'storageClassName': 'fast', 'accessModes': ['ReadOnlyMany']}, 'options': {'ctx-size': 8192, 'kv-cache-tokens': 1048576, 'memory-utilization': 0.5, 'ui': False, 'slots': True}},
]
WRONG = [{'replicas': 0}, {'replica': 2}, {'model': {'path': '/etc/passwd', 'alias': 'x'}}, {'options': {'--parallel': 1}},
         {'storage': {'accessModes': ['ReadWrite']}}, {'autoscaling': {'enabled': 'yes'}}, {'inferencePool': {'enabled': True, 'port': 0}},
         {'inferencePool': {'enabled': True, 'picker': 'x' * 254}}]

# The spec of an InferencePool (inference.networking.k8s.io/v1): facts of the resource definition in
# kubernetes-sigs/gateway-api-inference-extension, config/crd/bases. v1.0 allows one target port and needs a picker; later
# versions allow eight ports and no picker. The values here satisfy all versions.
PORT = {'type': 'object', 'required': ['number'], 'additionalProperties': False,
        'properties': {'number': {'type': 'integer', 'minimum': 1, 'maximum': 65535}}}
LABEL = {'type': 'string', 'maxLength': 63, 'pattern': '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'}
POOL = {'type': 'object', 'required': ['selector', 'targetPorts', 'endpointPickerRef'], 'additionalProperties': False, 'properties': {
    'targetPorts': {'type': 'array', 'minItems': 1, 'maxItems': 1, 'items': PORT},
    'selector': {'type': 'object', 'required': ['matchLabels'], 'additionalProperties': False, 'properties': {
        'matchLabels': {'type': 'object', 'minProperties': 1, 'maxProperties': 64, 'additionalProperties': LABEL}}},
    'endpointPickerRef': {'type': 'object', 'required': ['name'], 'additionalProperties': False, 'properties': {
        'name': {'type': 'string', 'minLength': 1, 'maxLength': 253}, 'port': PORT,
        'kind': {'type': 'string', 'minLength': 1, 'maxLength': 63, 'pattern': '^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$'},
        'group': {'type': 'string', 'maxLength': 253},
        'failureMode': {'enum': ['FailOpen', 'FailClose']}}}}}
WRONG_POOLS = [{'targetPorts': []}, {'targetPorts': [{'number': 0}]}, {'targetPorts': [{'number': '8080'}]}, {'selector': {'app': 'x'}},
               {'selector': {'matchLabels': {}}}, {'selector': {'matchLabels': {'app': '-'}}}, {'endpointPickerRef': {'name': 'x'}},
               {'endpointPickerRef': {'name': '', 'port': {'number': 1}}}, {'targetPortNumber': 8080}]
faults = []


def fault(text):
    faults.append(text)
    print('  ' + text)


def read(path):
    with open(os.path.join(ROOT, path)) as f: return f.read()


def versions():
    header = read('include/pagedinfer.h')
    want = '.'.join(re.search(rf'^#define PI_VERSION_{p} (\d+)$', header, re.M)[1] for p in ('MAJOR', 'MINOR', 'PATCH'))
    for path, pattern in (('debian/changelog', r'\Alibpagedinfer \((\S+)-\d+\)'), ('packaging/libpagedinfer.spec', r'(?m)^Version: +(\S+)$'),
                          ('deploy/helm/pagedinfer/Chart.yaml', r'(?m)^version: (\S+)$'),
                          ('deploy/helm/pagedinfer/Chart.yaml', r'(?m)^appVersion: "(\S+)"$')):
        m = re.search(pattern, read(path))
        if not m or m[1] != want: fault(f'{path}: version {m and m[1]}, not {want}')
    abi = re.search(r'^#define PI_ABI_VERSION (\d+)$', header, re.M)[1]
    if f'Package: libpagedinfer{abi}\n' not in read('debian/control'): fault(f'debian/control: no package libpagedinfer{abi}')
    return want


def render(helm, chart, values):
    """Returns the text of all rendered objects."""
    parts = chart.render(values, name='pagedinfer', namespace='default')
    return ''.join(f'---\n{text.strip()}\n' for path, text in sorted(parts.items()) if path.endswith('.yaml') and text.strip())


def pool_faults(pool):
    """The rules of InferencePools that this object violates."""
    import jsonschema
    spec = pool['spec']
    found = [f'{".".join(map(str, e.path))}: {e.message[:200]}' for e in jsonschema.Draft202012Validator(POOL).iter_errors(spec)]
    if pool['apiVersion'] != 'inference.networking.k8s.io/v1': found.append(f'apiVersion {pool["apiVersion"]}')
    picker = spec['endpointPickerRef']
    if picker.get('kind', 'Service') == 'Service' and 'port' not in picker: found.append('a Service as picker needs a port')
    return found


def pools(objects):
    """The pool is valid, selects the pods of the Deployment, and names a port of the server; wrong pools have faults."""
    for pool in (o for o in objects if o['kind'] == 'InferencePool'):
        for text in pool_faults(pool): fault(f'InferencePool: {text}')
        for change in WRONG_POOLS:
            if not pool_faults({**pool, 'spec': {**pool['spec'], **change}}): fault(f'the rules accept a pool with {change}')
        template = next(o for o in objects if o['kind'] == 'Deployment')['spec']['template']
        if not pool['spec']['selector']['matchLabels'].items() <= template['metadata']['labels'].items(): fault('the pool does not select the pods')
        ports = {p['containerPort'] for p in template['spec']['containers'][0]['ports'] if p['name'] == 'http'}
        if {p['number'] for p in pool['spec']['targetPorts']} != ports: fault(f'the pool has another port than {ports}')


def arguments(objects):
    """The tool accepts the server's arguments, and the pod outlives its draining server."""
    for o in objects:
        if o['kind'] != 'Deployment': continue
        spec = o['spec']['template']['spec']
        server = spec['containers'][0]
        args = [a.replace('$(POD_IP)', '10.0.0.1') for a in server['args'] if not a.startswith('--api-key-file')]
        if os.path.exists(BIN):
            r = subprocess.run([BIN, 'serve', *args, '--print-config'], capture_output=True, text=True)
            if r.returncode: fault(f'arguments of the server: {r.stderr.strip()[-300:]}')
        drain = next((int(a.split('=')[1]) for a in args if a.startswith('--drain-timeout=')), 30)
        wait = int(server['lifecycle']['preStop']['exec']['command'][1])
        if spec['terminationGracePeriodSeconds'] <= drain + wait: fault(f'{drain} + {wait} seconds are longer than the grace period')
        if spec['containers'][0]['securityContext']['readOnlyRootFilesystem'] is not True: fault('the root file system can be written')
        ids = {m['name'] for m in server['volumeMounts']} ^ {v['name'] for v in spec['volumes']}
        if ids: fault(f'volumes without mounts, or mounts without volumes: {ids}')


def chart(write):
    import helm_python as helm, kubernetes_validate, yaml
    for m in helm.lint(CHART, strict=True)['messages']:
        if m['severity'] >= 2: fault(f'helm lint: {m["path"]}: {m["error"]}')
    loaded, count = helm.Chart.load(CHART), 0
    for values in VALUES:
        text = render(helm, loaded, values)
        objects = [o for o in yaml.safe_load_all(text) if o]
        for o in objects:
            count += 1
            if o['kind'] == 'InferencePool': continue  # not in these schemas
            try: kubernetes_validate.validate(o, KUBERNETES, strict=True)
            except kubernetes_validate.ValidationError as e: fault(f'{o["kind"]}: {".".join(map(str, e.path))}: {e.message[:200]}')
        pools(objects)
        arguments(objects)
    for values in WRONG:
        try: render(helm, loaded, values)
        except helm.HelmError: continue
        fault(f'the schema accepts {values}')
    text = HEAD + render(helm, loaded, {})
    if write:
        with open(OUT, 'w') as f: f.write(text)
    if not os.path.exists(OUT) or read(OUT) != text: fault('deploy/kubernetes/pagedinfer.yaml is not the rendered chart: run check_deploy.py --write')
    return count


def dockerfiles():
    tool = shutil.which('hadolint', path=os.path.dirname(sys.executable) + ':' + os.environ.get('PATH', ''))
    for name in 'packaging/Dockerfile.cpu', 'packaging/Dockerfile.cuda':
        text = read(name)
        for word in r'USER \d+', 'HEALTHCHECK', 'ENTRYPOINT':
            if not re.search(rf'(?m)^{word}', text): fault(f'{name}: no {word}')
        if not tool: continue
        r = subprocess.run([tool, '--no-color', os.path.join(ROOT, name)], capture_output=True, text=True)
        if r.returncode: fault(r.stdout.strip())
    return 'hadolint' if tool else 'no hadolint'


def main():
    version = versions()
    lint = dockerfiles()
    try: count = chart('--write' in sys.argv)
    except ImportError as e:
        print(f'the Python package {e.name} is missing')
        return 1 if faults else 77
    print(f'deploy: version {version}, {count} objects, {lint}, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
