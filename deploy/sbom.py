#!/usr/bin/env python3
"""Lists what programs are made of, as a software bill of materials (CycloneDX 1.5, JSON) or as a table.

    deploy/sbom.py [--table] [--build DIR] FILE...       FILE: programs and libraries, such as build/bin/deepencoder-server

Nothing is declared by hand. Shared libraries are what the loader finds (ldd), static ones what the link commands of
the build directory name; the distribution's package database says which package, version and source each is of, and
the package's copyright file under which licences. A library of no package (CUDA's) is listed by its file.

The output depends on the files and packages alone: same input, same bytes. SOURCE_DATE_EPOCH, if set, is its time.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.parse
import uuid

VIRTUAL = re.compile(r"^(linux-vdso|linux-gate)")
FIELDS = "\n".join("${%s}" % name for name in ("Package", "Version", "Architecture", "source:Package", "source:Version", "Homepage"))
KNOWN_TEXTS = {"MIT": r"Permission (is hereby granted, free of charge|to use, copy, modify, and distribute)",
               "BSD": r"Redistribution and use in source and binary"}
COMMON_LICENCES = "/usr/share/common-licenses/"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shared_libraries(path):
    """Real paths of what the loader maps for `path`."""
    text = output("ldd", path)
    missing = re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE)
    if missing:
        sys.exit(f"sbom.py: {path}: not found: {', '.join(missing)}")
    found = re.findall(r"(?:=>\s+)?(/\S+) \(0x", text)
    return {os.path.realpath(library) for library in found if not VIRTUAL.match(os.path.basename(library))}


def static_libraries(build, path):
    """Archives from outside the build directory that are linked into `path`."""
    target = os.path.relpath(os.path.realpath(path), os.path.realpath(build))
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "-s", target], capture_output=True, text=True)
    if commands.returncode != 0:
        return set()  # not a product of this build
    return {os.path.realpath(archive) for archive in re.findall(r"(?:^|\s)(/\S+\.a)(?=\s|$)", commands.stdout)}


def packages_of(libraries):
    """Library -> the installed package that owns it, where one does. Packages name either side of the merged /usr."""
    names = {name: library for library in libraries for name in (library, library.removeprefix("/usr"))}
    found = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True)
    owners = {}
    for line in found.stdout.splitlines():
        packages, _, path = line.rpartition(": ")
        if path in names and not packages.startswith("diversion"):
            owners[names[path]] = packages.split(",")[0].strip()
    return owners


def licences_of(package):
    """Short names of the licences in a package's copyright file, and the file."""
    name = package.split(":")[0]
    path = f"/usr/share/doc/{name}/copyright"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return [], None
    # The machine-readable format names them; a free text refers to the distribution's copies, or says it.
    names = []
    if re.search(r"^Format:", text, re.MULTILINE):
        names = re.findall(r"^License:[ \t]*(\S[^\n]*)", text, re.MULTILINE)
    if not names:
        names = re.findall(re.escape(COMMON_LICENCES) + r"([A-Za-z0-9.+-]*[A-Za-z0-9+])", text)
        words = re.sub(r"\s+", " ", text)
        names += [licence for licence, phrase in KNOWN_TEXTS.items() if re.search(phrase, words)]
    unique = {licence.strip() for licence in names}
    return sorted(unique or {"see " + path}), path


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def distribution():
    with open("/etc/os-release", encoding="utf-8") as file:
        values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', file.read(), re.MULTILINE))
    return values.get("ID", "linux"), values.get("VERSION_ID", "")


def packaged(package, files, linkage):
    name, version, architecture, source, source_version, homepage = output("dpkg-query", "-W", "-f", FIELDS, package).split("\n")
    licences, copyright_file = licences_of(package)
    distro, release = distribution()
    quoted = urllib.parse.quote(version, safe="")
    component = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "licenses": [{"license": {"name": licence}} for licence in licences],
        "purl": f"pkg:deb/{distro}/{urllib.parse.quote(name, safe='')}@{quoted}?arch={architecture}&distro={distro}-{release}",
        "properties": [{"name": "deepencoder:linkage", "value": linkage},
                       {"name": "deepencoder:source", "value": f"{source} {source_version}"}]
        + [{"name": "deepencoder:file", "value": f"{os.path.basename(path)} sha256:{sha256(path)}"} for path in sorted(files)],
    }
    if copyright_file:
        component["properties"].append({"name": "deepencoder:copyright", "value": copyright_file})
    if homepage:
        component["externalReferences"] = [{"type": "website", "url": homepage}]
    return component


def unpackaged(path, linkage):
    name = os.path.basename(path)
    version = re.search(r"\.so\.([0-9.]+)$", name)
    return {"type": "library", "bom-ref": name, "name": name, "version": version.group(1) if version else "unknown",
            "licenses": [{"license": {"name": "NVIDIA CUDA EULA" if "/cuda" in path else "unknown"}}],
            "hashes": [{"alg": "SHA-256", "content": sha256(path)}],
            "properties": [{"name": "deepencoder:linkage", "value": linkage}]}


def components_of(paths, build):
    linkage = {}  # library -> how
    for path in paths:
        linkage.update(dict.fromkeys(static_libraries(build, path), "static"))
    for path in paths:
        for library in shared_libraries(path):
            linkage.setdefault(library, "shared")
    own = {os.path.realpath(path) for path in paths}
    packages, others = {}, []
    owners = packages_of(linkage)
    for library, how in sorted(linkage.items()):
        if library in own:
            continue
        package = owners.get(library)
        if package:
            packages.setdefault((package, how), []).append(library)
        else:
            others.append(unpackaged(library, how))
    return [packaged(package, files, how) for (package, how), files in sorted(packages.items())] + others


def bill(paths, build):
    version, commit = "unknown", "unknown"
    for path in paths:
        if os.access(path, os.X_OK) and not path.endswith(".so"):
            found = re.match(r"\S+ (\S+) \((.*)\)", output(path, "--version"))
            if found:
                version, commit = found.groups()
                break
    components = components_of(paths, build)
    root = {"type": "application", "bom-ref": "deepencoder", "name": "deepencoder", "version": version,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "properties": [{"name": "deepencoder:commit", "value": commit}]
            + [{"name": "deepencoder:file", "value": f"{os.path.basename(path)} sha256:{sha256(path)}"} for path in paths]}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
                "metadata": {"component": root}, "components": components,
                "dependencies": [{"ref": "deepencoder", "dependsOn": [component["bom-ref"] for component in components]}]}
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        time = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
        document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)).urn
    return document


def table(document):
    lines = ["| package | version | linked | licences |", "|---|---|---|---|"]
    for component in document["components"]:
        how = next(item["value"] for item in component["properties"] if item["name"] == "deepencoder:linkage")
        licences = ", ".join(entry["license"]["name"] for entry in component["licenses"])
        lines.append(f"| {component['name']} | {component['version']} | {how} | {licences} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="Markdown in place of CycloneDX")
    parser.add_argument("--build", default="build", help="build directory (default: build)")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    document = bill(arguments.files, arguments.build)
    print(table(document) if arguments.table else json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
