"""Makes one image of those for several processors: ``index.py OUT VERSION SECONDS ARCHIVE...``.

The archives are OCI layouts of one image each; OUT is such a layout whose image is an index of them, from which whoever pulls
takes the one for its processor (OCI Image Format Specification 1.1, image index). The same input gives the same bytes.
"""

import hashlib
import io
import json
import sys
import tarfile

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


def files_of(archive):
    """Names and contents of an archive."""
    with tarfile.open(archive) as tar:
        members = (member for member in tar if member.isfile())
        return {member.name.removeprefix("./"): tar.extractfile(member).read() for member in members}


def blob_name(digest):
    return "blobs/" + digest.replace(":", "/", 1)


def put(blobs, content):
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    blobs[blob_name(digest)] = content
    return {"digest": digest, "size": len(content)}


def image_of(files):
    """The descriptor of the one image of a layout, with the processor that it is for."""
    (descriptor,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files[blob_name(descriptor["digest"])])
    config = json.loads(files[blob_name(manifest["config"]["digest"])])
    platform = {"architecture": config["architecture"], "os": config["os"]}
    return {key: descriptor[key] for key in ("mediaType", "digest", "size")} | {"platform": platform}


def encoded(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main(out, version, seconds, *archives):
    blobs, images = {}, []
    for archive in archives:
        files = files_of(archive)
        blobs |= {name: content for name, content in files.items() if name.startswith("blobs/")}
        images.append(image_of(files))
    index = put(blobs, encoded({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": images}))
    named = index | {"mediaType": INDEX_TYPE, "annotations": {"org.opencontainers.image.ref.name": version}}
    files = blobs | {
        "index.json": encoded({"schemaVersion": 2, "manifests": [named]}),
        "oci-layout": encoded({"imageLayoutVersion": "1.0.0"}),
    }
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), int(seconds), 0o644
            tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main(*sys.argv[1:])
