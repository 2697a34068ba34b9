"""Every view of the page in a real browser: widths, light and dark, the keyboard, and what must never happen.

Arguments: the management port, the port of clients, the browser's program; with a directory as fourth, pictures go there.
With PAGE_DIR in the environment the page's files are taken from there, for who works on them.
"""

import os
import pathlib
import socket
import sys

from playwright.sync_api import sync_playwright

port, clients, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
pictures = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
own = os.environ.get("PAGE_DIR")
base = f"http://127.0.0.1:{port}/"
VIEWS = ["overview", "commands", "keys", "clients", "slow", "persistence", "replication", "config", "users", "console", "log"]
WIDTHS = [390, 768, 1440]
HOSTILE = [b"<img src=x onerror=\"document.title='gone'\">", b"\x00\xff\xfe bytes", b"</script><script>document.title='gone'</script>", "r\u202etl".encode(), b"a:b:c:" + b"x" * 3000]


def command(*args):
    sent = b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in args)
    with socket.create_connection(("127.0.0.1", clients)) as link:
        link.sendall(sent)
        return link.recv(65536)


for key in HOSTILE:
    command(b"SET", key, key * 3)
    command(b"HSET", b"hash:" + key, key, key)
command(b"SET", b"large", b"y" * 10_000_000)
command(b"RPUSH", b"list:a", *[b"element %d" % n for n in range(600)])
command(b"XADD", b"stream:a", b"*", b"field", HOSTILE[0])
command(b"ZADD", b"zset:a", b"1", HOSTILE[0], b"2.5", b"b")
command(b"CLIENT", b"SETNAME", b"<b>name</b>")

faults = []


def watch(page):
    page.on("console", lambda message: faults.append(f"console: {message.type} {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("request", lambda request: request.url.startswith((base, "data:", "blob:")) or faults.append(f"foreign request: {request.url}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    if own:
        def file(route):
            name = route.request.url[len(base):] or "index.html"
            path = pathlib.Path(own) / name
            if path.is_file():
                headers = {"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"}
                route.fulfill(path=str(path), headers={**headers, "Content-Type": {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}[path.suffix]})
            else:
                route.continue_()
        page.route(lambda url: url.startswith(base) and ("." in url[len(base):] and "json" not in url or url == base), file)


def picture(page, name):
    if pictures:
        page.screenshot(path=str(pictures / f"{name}.png"))


def visit(page, width, theme):
    for view in VIEWS:
        page.goto(f"{base}#{view}")
        page.wait_for_selector("main h1")
        page.wait_for_timeout(700)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if overflow > 1:
            faults.append(f"{view} at {width} px is {overflow} px too wide")
        picture(page, f"{view}-{width}-{theme}")


def browse(page):
    page.goto(f"{base}#keys")
    page.get_by_role("button", name="Look", exact=True).click()
    page.get_by_text("of the keyspace seen").wait_for()
    page.get_by_role("button", name="List").click()
    page.wait_for_selector("table[aria-label='Keys found'] tbody tr.pick")
    rows = page.locator("table[aria-label='Keys found'] tbody tr.pick")
    for at in range(min(rows.count(), 14)):
        rows.nth(at).click()
        page.wait_for_selector("text=encoding")
    longest = page.evaluate("""async () => {
      let worst = 0, last = performance.now();
      for (let turn = 0; turn < 40; turn += 1) {
        await new Promise((done) => setTimeout(done, 5));
        worst = Math.max(worst, performance.now() - last); last = performance.now();
      }
      return worst;
    }""")
    if longest > 3000:
        faults.append(f"the page stood still for {longest} ms")
    picture(page, "value")


def console(page):
    page.goto(f"{base}#console")
    box = page.get_by_label("Command", exact=True)
    for line in ["SET greeting 'hello world'", "GET greeting", "HGETALL nothing", "CONFIG GET maxmemory*", "ZRANGE zset:a 0 -1 WITHSCORES", "NOPE"]:
        box.fill(line)
        box.press("Enter")
        page.wait_for_timeout(150)
        if page.locator("dialog").count():
            page.get_by_role("button", name="Run it").click()
        page.wait_for_timeout(250)
    text = page.locator(".term .out").inner_text()
    for wanted in ['"hello world"', "(error) ERR unknown command"]:
        if wanted not in text:
            faults.append(f"console: {wanted} is not in {text}")
    box.fill("set k")
    page.wait_for_timeout(400)
    picture(page, "console-used")


def keyboard(page):
    page.goto(f"{base}#overview")
    page.wait_for_selector("main h1")
    page.locator("body").press("Tab")
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('href') || document.activeElement.textContent"))
    for wanted in ["#keys", "#log", "1 h"]:
        if wanted not in reached:
            faults.append(f"the keyboard does not reach {wanted}: {reached}")


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    for theme in ["light", "dark"]:
        for width in WIDTHS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            page = context.new_page()
            watch(page)
            visit(page, width, theme)
            if page.title() == "gone":
                faults.append("a key or value was executed")
            if width == 1440 and theme == "light":
                browse(page)
                console(page)
                keyboard(page)
            if page.title() == "gone":
                faults.append("a key or value was executed")
            context.close()
    browser.close()

for fault in dict.fromkeys(faults):
    print(fault)
sys.exit(1 if faults else 0)
