#!/usr/bin/env python3
"""Builds the HTML documentation (tools/gen/site.sh) and checks it.

Every link and anchor of every page resolves, and no page loads a file from another server. If chromium is installed,
it opens some pages headless, 390 pixels wide: each needs its heading and must not be wider than the window.
Exit status 77: MkDocs cannot be installed. Standard library only."""
import functools, glob, html.parser, http.server, json, os, re, shutil, subprocess, sys, tempfile, threading, urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SITE = os.path.join(ROOT, 'build/site')
WIDTH = 390
OPENED = {'index.html': 'libpagedinfer', 'SERVER.html': 'The server', 'api.html': 'C API', 'OPTIONS.html': 'Options',
          'design/overview.html': ''}   # page -> heading; '' = any
PROBE = """<!doctype html><body><script>
const pages = %s, out = [];
function next() {
  if (!pages.length) { document.body.innerHTML = ''; document.title = 'ready';
                       document.body.appendChild(document.createElement('pre')).textContent = JSON.stringify(out); return; }
  const f = document.createElement('iframe'), page = pages.shift();
  f.style = 'width: %dpx; height: 800px; border: 0';
  f.onload = () => setTimeout(() => {
    const d = f.contentDocument, h = d.querySelector('article h1'), wide = [];
    for (const e of d.querySelectorAll('article *')) {
      if (e.getBoundingClientRect().right > f.clientWidth + 1 && !e.closest('.md-typeset__scrollwrap, pre')) wide.push(e.tagName + ' ' + e.textContent.slice(0, 60));
    }
    out.push({page, heading: h ? h.textContent : '', width: d.documentElement.scrollWidth, wide: wide.slice(0, 3)});
    f.remove(); next(); }, 300);
  f.src = page; document.body.appendChild(f);
}
next();
</script>"""
faults = []


class Page(html.parser.HTMLParser):
    """Ids and references of one page."""
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        with open(path, encoding='utf-8') as f: self.feed(f.read())

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if 'id' in a: self.ids.add(a['id'])
        if tag == 'a' and a.get('href'): self.links.append(a['href'])
        if tag in ('script', 'img', 'iframe') and a.get('src'): self.loaded.append(a['src'])
        if tag == 'link' and a.get('href') and a.get('rel') in ('stylesheet', 'icon', 'preconnect'): self.loaded.append(a['href'])


def check_links():
    paths = glob.glob(os.path.join(SITE, '**/*.html'), recursive=True)
    pages = {os.path.relpath(p, SITE): Page(p) for p in paths}
    n = 0
    for name, page in pages.items():
        if name == '404.html': continue   # its links begin with /
        for link in page.links + page.loaded:
            part = urllib.parse.urlsplit(link)
            if part.scheme or part.netloc:
                if link in page.loaded and part.scheme != 'data': faults.append(f'{name}: loads {link}')
                continue
            n += 1
            to = os.path.normpath(os.path.join(os.path.dirname(name), urllib.parse.unquote(part.path))) if part.path else name
            if os.path.isdir(os.path.join(SITE, to)): to = os.path.join(to, 'index.html')
            if not os.path.exists(os.path.join(SITE, to)): faults.append(f'{name}: no such file: {link}')
            elif part.fragment and to in pages and urllib.parse.unquote(part.fragment) not in pages[to].ids | {'__skip', '__codelineno'}:
                faults.append(f'{name}: no such anchor: {link}')
    return len(pages), n


def open_pages(browser):
    """Opens pages in one frame after the other."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_): pass
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    probe = os.path.join(SITE, 'probe.html')
    with open(probe, 'w') as f: f.write(PROBE % (json.dumps(list(OPENED)), WIDTH))
    try:
        with tempfile.TemporaryDirectory() as home:
            r = subprocess.run([browser, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', f'--user-data-dir={home}',
                                '--virtual-time-budget=30000', '--window-size=1000,900', '--dump-dom',
                                f'http://127.0.0.1:{server.server_port}/probe.html'],
                               capture_output=True, text=True, timeout=120, env={**os.environ, 'HOME': home})
    finally:
        server.shutdown()
        os.remove(probe)
    m = re.search(r'<pre>(.*?)</pre>', r.stdout, re.S)
    if not m:
        faults.append(f'{browser} shows no result: {r.stderr[-300:]}')
        return 0
    results = json.loads(html.unescape(m[1]))
    for p in results:
        expected = OPENED[p['page']]
        if not p['heading'] or expected not in p['heading']: faults.append(f'{p["page"]}: heading {p["heading"]!r}, not {expected!r}')
        if p['width'] > WIDTH: faults.append(f'{p["page"]}: {p["width"]} pixels wide in a window of {WIDTH}')
        if p['wide']: faults.append(f'{p["page"]}: too wide: {p["wide"]}')
    return len(results)


def main():
    r = subprocess.run(['bash', os.path.join(ROOT, 'tools/gen/site.sh')], capture_output=True, text=True, timeout=600)
    if r.returncode:
        print(r.stdout[-3000:] + r.stderr[-1000:])
        return r.returncode
    n_pages, n_links = check_links()
    browser = next((b for b in ('chromium', 'chromium-browser', 'google-chrome') if shutil.which(b)), None)
    n_opened = open_pages(browser) if browser else 0
    print('\n'.join(faults[:30] + [f'site: {n_pages} pages, {n_links} links, {n_opened} opened by {browser or "no browser"}, {len(faults)} faults']))
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
