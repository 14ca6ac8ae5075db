"""The bill of materials names every library that the built programs take in, once, with version and licences."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = [os.environ["DEEPENCODER_SERVER_PROGRAM"], os.environ["DEEPENCODER_CLIENT_PROGRAM"]]
BUILD = os.environ["DEEPENCODER_BUILD_DIR"]


def sbom(*arguments, **environment):
    return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "deploy", "sbom.py"), "--build", BUILD, *arguments, *PROGRAMS],
                          check=True, capture_output=True, text=True, env={**os.environ, **environment}).stdout


def value(component, name):
    return [item["value"] for item in component["properties"] if item["name"] == "deepencoder:" + name]


class BillOfMaterials(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = sbom(SOURCE_DATE_EPOCH="0")
        cls.document = json.loads(cls.text)

    def test_is_cyclonedx_about_this_build(self):
        self.assertEqual((self.document["bomFormat"], self.document["specVersion"]), ("CycloneDX", "1.5"))
        root = self.document["metadata"]["component"]
        version = subprocess.run([PROGRAMS[0], "--version"], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"deepencoder-server {root['version']} ({value(root, 'commit')[0]})", version)
        self.assertRegex(self.document["serialNumber"], r"^urn:uuid:[0-9a-f-]{36}$")
        self.assertEqual(self.document["metadata"]["timestamp"], "1970-01-01T00:00:00Z")

    def test_names_every_library_that_is_loaded(self):
        listed = [text.split(" ")[0] for component in self.document["components"] for text in value(component, "file")]
        self.assertEqual(len(listed), len(set(listed)))
        for program in PROGRAMS:
            needed = re.findall(r"=> (/\S+) ", subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout)
            self.assertGreater(len(needed), 20)
            for library in needed:
                self.assertIn(os.path.basename(os.path.realpath(library)), listed)

    def test_names_what_is_linked_statically(self):
        rules = os.path.join(BUILD, "build.ninja")
        if not os.path.exists(rules):
            self.skipTest("not built with Ninja")
        with open(rules, encoding="utf-8") as file:
            static = "libopencv_core.a" in file.read()
        if not static:
            self.skipTest("OpenCV is linked as a shared library here")
        static = {component["name"] for component in self.document["components"] if value(component, "linkage") == ["static"]}
        self.assertIn("libopencv-core-dev", static)

    def test_every_component_has_version_licence_and_place(self):
        references = [component["bom-ref"] for component in self.document["components"]]
        self.assertEqual(self.document["dependencies"], [{"ref": "deepencoder", "dependsOn": references}])
        for component in self.document["components"]:
            with self.subTest(component["name"]):
                self.assertRegex(component["version"], r"\d")
                self.assertTrue(component["licenses"])
                for entry in component["licenses"]:
                    self.assertNotIn("see /", entry["license"]["name"])
                self.assertRegex(component["purl"], r"^pkg:deb/(debian|ubuntu)/\S+@\S+\?arch=\w+&distro=\w+-[\d.]+$")

    def test_is_the_same_every_time(self):
        self.assertEqual(sbom(SOURCE_DATE_EPOCH="0"), self.text)

    def test_table_has_a_row_for_each(self):
        rows = sbom("--table").splitlines()[2:]
        self.assertEqual(len(rows), len(self.document["components"]))
        for row, component in zip(rows, self.document["components"]):
            self.assertTrue(row.startswith(f"| {component['name']} | {component['version']} |"), row)


if __name__ == "__main__":
    if not shutil.which("dpkg-query"):
        print("no dpkg: the packages of the libraries are not known here")
        sys.exit(77)
    unittest.main(verbosity=2)
