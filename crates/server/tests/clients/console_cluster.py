"""What the page shows of a control group, of hash slots that move, and of a tier, in a real browser at three widths.

Arguments: the browser's program, a directory for pictures or "-", and for each node its management port and that of clients.
All slots are the first node's; while the browser looks most go to the second one and back.
"""

import sys
import threading
import time

from console_browser import Browser, client

program, pictures = sys.argv[1], None if sys.argv[2] == "-" else sys.argv[2]
ports = [int(one) for one in sys.argv[3:]]
nodes = list(zip(ports[::2], ports[1::2]))


def text(reply):
    return reply.split(b"\r\n")[1] if reply.startswith(b"$") else reply.strip()


names = [text(client(clients)(b"CLUSTER", b"MYID")) for _, clients in nodes]
over = threading.Event()


def give(source, target, first, last, name):
    """Has slots go from one node to another, and waits until they are there."""
    source(b"CLUSTER", b"MIGRATESLOTS", b"SLOTSRANGE", first, last, b"NODE", name)
    for _ in range(600):
        if over.is_set() or first + b"-" + last in target(b"CLUSTER", b"NODES").split(b"myself", 1)[1].split(b"\n", 1)[0]:
            return
        time.sleep(0.05)


def move():
    """Moves slots there and back for as long as somebody looks."""
    asks = [client(clients) for _, clients in nodes]
    give(asks[0], asks[2], b"12000", b"16383", names[2])
    here, there = 0, 1
    while not over.is_set():
        give(asks[here], asks[there], b"0", b"11999", names[there])
        here, there = there, here


# So often it is looked whether a slot moves, 20 times a second.
TURNS = 2_400
was_seen = False
mover = threading.Thread(target=move)
mover.start()
try:
    with Browser(f"http://127.0.0.1:{nodes[0][0]}/", program, pictures) as browser:
        for width, theme, page in browser.pages():
            browser.visit(page, "replication", width, theme)
            page.wait_for_selector("canvas.slots", state="visible", timeout=60_000)
            page.get_by_text("led by").wait_for(timeout=60_000)
            rows = page.locator("table[aria-label='Control group'] tbody tr")
            if rows.count() != len(nodes):
                browser.faults.append(f"the control group has {rows.count()} rows")
            for name in ["Control group", "Hash slots"]:
                page.get_by_role("heading", name=name, exact=True).scroll_into_view_if_needed()
            browser.picture(page, f"group-{width}-{theme}")
            # Each move is in the table; that one goes on is seen only by who looks at the right moment.
            page.wait_for_selector("table[aria-label='Moves'] tbody span.good", timeout=120_000)
            browser.picture(page, f"moves-{width}-{theme}")
            if width == 1440 and theme == "light":
                for _ in range(TURNS):
                    if page.locator("dl.facts dt", has_text="moving").count():
                        was_seen = True
                        browser.picture(page, "moving")
                        break
                    page.wait_for_timeout(50)
            browser.visit(page, "persistence", width, theme)
            page.get_by_role("heading", name="Tier", exact=True).wait_for(timeout=60_000)
            page.get_by_role("heading", name="Tier", exact=True).scroll_into_view_if_needed()
            browser.picture(page, f"tier-{width}-{theme}")
        if not was_seen:
            browser.faults.append("no slot was seen to move")
        code = browser.verdict()
finally:
    over.set()
    mover.join()
sys.exit(code)
