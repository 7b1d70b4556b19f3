#!/usr/bin/env python3
"""Writes the software bill of materials of a source tarball: SPDX 2.3 as JSON, on standard output.

    gen_sbom.py TARBALL VERSION > libpagedinfer-VERSION.spdx.json

The document has each file with its checksums, and the libraries that a build links to. It depends only on the tarball
and on SOURCE_DATE_EPOCH (0 if unset). Standard library only."""
import datetime, hashlib, json, os, sys, tarfile

# Libraries of the full build: name, licence, purpose. CMakeLists.txt finds them; versions are those of the system.
LIBRARIES = [
    ('pcre2', 'BSD-3-Clause', 'regular expressions of tokenizers and grammars'), ('xxhash', 'BSD-2-Clause', 'hashes (header only)'),
    ('jansson', 'MIT', 'JSON of the tool'), ('libuv', 'MIT', 'the server'), ('libedit', 'BSD-3-Clause', 'line editing in chat'),
    ('curl', 'curl', 'model downloads'), ('openssl', 'Apache-2.0', 'checksums and TLS'), ('libpng', 'libpng-2.0', 'PNG images'),
    ('libjpeg-turbo', 'IJG', 'JPEG images'), ('libwebp', 'BSD-3-Clause', 'WebP images'), ('zeromq', 'MPL-2.0', 'KV events'),
    ('msgpack-c', 'BSL-1.0', 'KV events'), ('openmpi', 'BSD-3-Clause', 'processes over MPI (plug-in)')]


def package(name, version, licence, comment):
    return {'SPDXID': f'SPDXRef-{name}', 'name': name, 'versionInfo': version, 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
            'licenseConcluded': licence, 'licenseDeclared': licence, 'copyrightText': 'NOASSERTION', 'comment': comment}


def files_of(tarball):
    """Returns the files of the tarball, without its top folder, as SPDX."""
    found = []
    with tarfile.open(tarball) as t:
        for m in t:
            if not m.isfile(): continue
            data = t.extractfile(m).read()
            sums = [{'algorithm': a, 'checksumValue': hashlib.new(a.lower(), data).hexdigest()} for a in ('SHA1', 'SHA256')]
            found.append({'fileName': './' + m.name.split('/', 1)[1], 'checksums': sums, 'licenseConcluded': 'MIT',
                          'licenseInfoInFiles': ['NOASSERTION'], 'copyrightText': 'NOASSERTION'})
    found.sort(key=lambda f: f['fileName'])
    for i, f in enumerate(found): f['SPDXID'] = f'SPDXRef-File-{i}'
    return found


def main():
    tarball, version = sys.argv[1:]
    with open(tarball, 'rb') as f: digest = hashlib.sha256(f.read()).hexdigest()
    files = files_of(tarball)
    time = datetime.datetime.fromtimestamp(int(os.environ.get('SOURCE_DATE_EPOCH', '0')), datetime.timezone.utc)
    code = hashlib.sha1(''.join(sorted(f['checksums'][0]['checksumValue'] for f in files)).encode()).hexdigest()
    own = package('libpagedinfer', version, 'MIT', 'Paged inference engine for large language models')
    own.update(filesAnalyzed=True, packageFileName=os.path.basename(tarball), copyrightText='Copyright (c) 2026 The libpagedinfer authors',
               packageVerificationCode={'packageVerificationCodeValue': code}, licenseInfoFromFiles=['NOASSERTION'],
               checksums=[{'algorithm': 'SHA256', 'checksumValue': digest}])
    related = [('SPDXRef-DOCUMENT', 'DESCRIBES', own['SPDXID'])] + [(own['SPDXID'], 'CONTAINS', f['SPDXID']) for f in files]
    related += [(own['SPDXID'], 'DEPENDS_ON', f'SPDXRef-{name}') for name, *_ in LIBRARIES]
    document = {
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': f'libpagedinfer-{version}',
        'documentNamespace': f'https://spdx.org/spdxdocs/libpagedinfer-{version}-{digest}',
        'creationInfo': {'created': time.strftime('%Y-%m-%dT%H:%M:%SZ'), 'creators': ['Tool: gen_sbom.py', 'Organization: The libpagedinfer authors']},
        'packages': [own] + [package(name, 'NOASSERTION', licence, use) for name, licence, use in LIBRARIES], 'files': files,
        'relationships': [{'spdxElementId': a, 'relationshipType': kind, 'relatedSpdxElement': b} for a, kind, b in related]}
    for p in document['packages'][1:]: del p['versionInfo']
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == '__main__':
    main()
