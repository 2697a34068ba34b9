"""Makes a wheel with a program in it: ``wheel.py PROGRAM VERSION PLATFORM SECONDS DIRECTORY``.

Nothing but the standard library is needed, and the same input gives the same bytes: files are sorted, and all are of the
second SECONDS since 1970. PLATFORM is what the program runs on, such as ``manylinux_2_36_x86_64``.
"""

import base64
import hashlib
import sys
import time
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]


def entry_points(project):
    sections = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    return "".join(f"[{name}]\n" + "".join(f"{left} = {right}\n" for left, right in of.items()) + "\n" for name, of in sections.items())


def metadata(project, version):
    fields = [("Metadata-Version", "2.4"), ("Name", project["name"]), ("Version", version), ("Summary", project["description"]),
              ("License-Expression", project["license"]), ("Requires-Python", project["requires-python"]),
              *(("License-File", name) for name in LICENCES)]
    return "".join(f"{name}: {value}\n" for name, value in fields)


def files(program, version, tag):
    """Names in the wheel, with what they hold and whether they are run."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    known = f"{project['name'].replace('-', '_')}-{version}"
    info = f"{known}.dist-info"
    package = HERE / "src" / "iolite"
    all = {f"iolite/{path.name}": (path.read_bytes(), False) for path in package.glob("*.py")}
    all["iolite/bin/iolite"] = (Path(program).read_bytes(), True)
    all[f"{info}/METADATA"] = (metadata(project, version).encode(), False)
    all[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: iolite\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False)
    all[f"{info}/entry_points.txt"] = (entry_points(project).encode(), False)
    for name in LICENCES:
        all[f"{info}/licenses/{name}"] = ((HERE.parents[1] / name).read_bytes(), False)
    lines = []
    for name, (content, _) in sorted(all.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    lines.append(f"{info}/RECORD,,\n")
    all[f"{info}/RECORD"] = ("".join(lines).encode(), False)
    return known, all


def main(program, version, platform, seconds, directory):
    tag = f"py3-none-{platform}"
    known, all = files(program, version, tag)
    at = time.gmtime(max(int(seconds), 315532800))[:6]
    path = Path(directory) / f"{known}-{tag}.whl"
    # The list of files comes last, as the format asks.
    names = sorted(all, key=lambda name: (name.endswith("/RECORD"), name))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name in names:
            content, is_run = all[name]
            member = zipfile.ZipInfo(name, at)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100755 if is_run else 0o100644) << 16
            member.create_system = 3
            wheel.writestr(member, content)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
