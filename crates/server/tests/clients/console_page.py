"""Every view of the page in a real browser: widths, light and dark, the keyboard, and what must never happen.

Arguments: the management port, the port of clients, the browser's program; with a directory as fourth, pictures go there.
"""

import sys

from console_browser import Browser, client

port, clients, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
command = client(clients)
VIEWS = ["overview", "commands", "keys", "clients", "slow", "persistence", "replication", "config", "users", "console", "log"]
HOSTILE = [b"<img src=x onerror=\"document.title='gone'\">", b"\x00\xff\xfe bytes", b"</script><script>document.title='gone'</script>", "r\u202etl".encode(), b"a:b:c:" + b"x" * 3000]

for key in HOSTILE:
    command(b"SET", key, key * 3)
    command(b"HSET", b"hash:" + key, key, key)
command(b"SET", b"large", b"y" * 10_000_000)
command(b"RPUSH", b"list:a", *[b"element %d" % n for n in range(600)])
command(b"XADD", b"stream:a", b"*", b"field", HOSTILE[0])
command(b"ZADD", b"zset:a", b"1", HOSTILE[0], b"2.5", b"b")
command(b"CLIENT", b"SETNAME", b"<b>name</b>")
# As much of everything as a view may meet.
for at in range(0, 60_000, 500):
    command(b"MSET", *[part for n in range(at, at + 500) for part in (b"user:%d:%d" % (n % 300, n), b"v%d" % n)])
command(b"HSET", b"wide", *[part for n in range(20_000) for part in (b"field %d" % n, b"w" * 60)])
for n in range(300):
    command(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0") if n == 0 else command(b"SET", b"slow:%d" % n, HOSTILE[n % 5] * 20)
command(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"10000")
command(b"SET", b"nine", b"z" * 7_000_000)


def browse(browser, page):
    page.goto(f"{browser.base}#keys")
    page.get_by_label("Pattern").fill("*a*")
    page.get_by_role("button", name="Look", exact=True).click()
    page.get_by_text("of the keyspace seen").wait_for()
    page.get_by_role("button", name="Go on until").click()
    page.get_by_role("button", name="List").click()
    page.wait_for_selector("table[aria-label='Keys found'] tbody tr.pick")
    rows = page.locator("table[aria-label='Keys found'] tbody tr.pick")
    for at in range(min(rows.count(), 14)):
        rows.nth(at).click()
        page.wait_for_selector("text=encoding")
    browser.picture(page, "value")


def found(page, pattern):
    """Looks for keys until the first of them is there; its row."""
    page.get_by_label("Pattern").fill(pattern)
    page.get_by_role("button", name="List").click()
    page.get_by_role("button", name="Look", exact=True).click()
    # Rows of what was looked for before may still be there.
    row = page.locator("table[aria-label='Keys found'] tbody tr.pick", has_text=pattern.rstrip("*")).first
    more = page.get_by_role("button", name="Go on until")
    while not row.is_visible():
        if more.is_visible():
            more.click()
        page.wait_for_timeout(300)
    return row


def look_at_everything(browser, page):
    """A tree of all keys, and each kind of value that is large or hostile."""
    page.goto(f"{browser.base}#keys")
    page.get_by_label("Pattern").fill("")
    page.get_by_role("button", name="Look", exact=True).click()
    for _ in range(12):
        if not page.get_by_role("button", name="Go on until").is_visible():
            break
        page.get_by_role("button", name="Go on until").click()
        page.wait_for_timeout(400)
    page.get_by_role("button", name="List").click()
    page.get_by_role("button", name="Tree").click()
    browser.picture(page, "tree")
    for pattern in ["large", "nine", "wide", "list:a", "hash:*", "stream:a", "zset:a"]:
        found(page, pattern).click()
        page.wait_for_selector("text=encoding")
        if page.get_by_role("button", name="Next page").is_visible():
            page.get_by_role("button", name="Next page").click()
    with page.expect_download() as download:
        found(page, "large").click()
        page.get_by_role("button", name="Download").click()
    size = len(open(download.value.path(), "rb").read())
    if size != 10_000_000:
        browser.faults.append(f"a download of 10,000,000 bytes had {size}")


def console(browser, page):
    page.goto(f"{browser.base}#console")
    box = page.get_by_label("Command", exact=True)
    for line in ["SET greeting 'hello world'", "GET greeting", "HGETALL nothing", "CONFIG GET maxmemory*", "ZRANGE zset:a 0 -1 WITHSCORES", "NOPE",
                 "KEYS *", "HGETALL wide", "GET nine", "COMMAND", "INFO everything", "CLIENT LIST"]:
        box.fill(line)
        box.press("Enter")
        page.wait_for_timeout(150)
        if page.locator("dialog").count():
            page.get_by_role("button", name="Run it").click()
        page.wait_for_timeout(600)
        if line == "NOPE":
            browser.picture(page, "console-used")
    text = page.locator(".term .out").inner_text()
    for wanted in ['"hello world"', "(error) ERR unknown command"]:
        if wanted not in text:
            browser.faults.append(f"console: {wanted} is not in {text[:2000]}")
    box.fill("set k")
    page.wait_for_timeout(400)


def keyboard(browser, page):
    page.goto(f"{browser.base}#overview")
    page.wait_for_selector("main h1")
    page.locator("body").press("Tab")
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('href') || document.activeElement.textContent"))
    for wanted in ["#keys", "#log", "1 h"]:
        if wanted not in reached:
            browser.faults.append(f"the keyboard does not reach {wanted}: {reached}")


with Browser(f"http://127.0.0.1:{port}/", program, sys.argv[4] if len(sys.argv) > 4 else None) as browser:
    for width, theme, page in browser.pages():
        for view in VIEWS:
            browser.visit(page, view, width, theme)
        if width == 1440 and theme == "light":
            for part in [browse, look_at_everything, console, keyboard]:
                browser.without_freezing(page, part.__name__, lambda: part(browser, page))
    sys.exit(browser.verdict())
