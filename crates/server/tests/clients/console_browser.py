"""A real browser that looks at the page, and notes what must never happen: a message in the console, an error, a request to
another server, a dialog, a view that is wider than the window, something that was executed, a page that stands still.

With PAGE_DIR in the environment the page's files are taken from there, for who works on them.
"""

import os
import pathlib
import socket

from playwright.sync_api import sync_playwright

WIDTHS = [390, 768, 1440]
# So long may the page be busy with one thing.
BUSY_MS_MAX = 200
# What was busy for longer is done again: another program may have had the processor.
TRIES = 3
OBSERVER = """
window.busy = [];
new PerformanceObserver((list) => { for (const one of list.getEntries()) window.busy.push(Math.round(one.duration)); }).observe({ type: "longtask", buffered: true });
"""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def client(port):
    """What sends one command and returns the first bytes of its reply."""
    link = socket.create_connection(("127.0.0.1", port))

    def command(*args):
        link.sendall(b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in args))
        return link.recv(65536)

    return command


class Browser:
    def __init__(self, base, program, pictures=None):
        self.base, self.program = base, program
        self.pictures = pathlib.Path(pictures) if pictures else None
        self.own = os.environ.get("PAGE_DIR")
        self.faults, self.longest = [], {}

    def __enter__(self):
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=self.program, args=["--no-sandbox"])
        return self

    def __exit__(self, *_):
        self.browser.close()
        self.playwright.stop()

    def pages(self):
        """A page for each width and theme."""
        for theme in ["light", "dark"]:
            for width in WIDTHS:
                context = self.browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
                page = context.new_page()
                page.add_init_script(OBSERVER)
                self.watch(page)
                yield width, theme, page
                if page.title() == "gone":
                    self.faults.append("a key or value was executed")
                context.close()

    def watch(self, page):
        page.on("console", lambda message: self.faults.append(f"console: {message.type} {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith((self.base, "data:", "blob:")) or self.faults.append(f"foreign request: {request.url}"))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        if self.own:
            base = self.base
            page.route(lambda url: url.startswith(base) and ("." in url[len(base):] and "json" not in url or url == base), self.file)

    def file(self, route):
        path = pathlib.Path(self.own) / (route.request.url[len(self.base):] or "index.html")
        if path.is_file():
            route.fulfill(path=str(path), headers={"Content-Security-Policy": POLICY, "Content-Type": KINDS[path.suffix]})
        else:
            route.continue_()

    def picture(self, page, name):
        if self.pictures:
            page.screenshot(path=str(self.pictures / f"{name}.png"))

    def visit(self, page, view, width, theme, wait_ms=700):
        def look():
            page.goto(f"{self.base}#{view}")
            page.wait_for_selector("main h1")
            page.wait_for_timeout(wait_ms)

        self.without_freezing(page, f"{view} at {width} px", look)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if overflow > 1:
            self.faults.append(f"{view} at {width} px is {overflow} px too wide")
        self.picture(page, f"{view}-{width}-{theme}")

    def without_freezing(self, page, what, do):
        """Does something until the page was never busy for too long, a few times at most."""
        worst = []
        for _ in range(TRIES):
            page.evaluate("window.busy = []")
            do()
            page.wait_for_timeout(60)
            worst.append(max(page.evaluate("window.busy || []"), default=0))
            if worst[-1] <= BUSY_MS_MAX:
                break
        else:
            self.faults.append(f"{what}: the page stood still for {worst} ms")
        name = what.split(" at ")[0]
        self.longest[name] = max(self.longest.get(name, 0), min(worst))

    def verdict(self):
        for fault in dict.fromkeys(self.faults):
            print(fault)
        print("longest task of the page, ms:", ", ".join(f"{name} {ms}" for name, ms in self.longest.items()))
        return 1 if self.faults else 0
