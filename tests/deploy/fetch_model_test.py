#!/usr/bin/env python3
"""deploy/fetch-model.sh against a real web server: what is right is taken, what is not never gets its name."""
import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "deploy",
                      "fetch-model.sh")
FILES = {"config.json": b"{}", "model.safetensors": os.urandom(3 << 20)}


class Handler(http.server.SimpleHTTPRequestHandler):
    asked = []  # (path, Range header)

    def do_GET(self):  # noqa: N802 (the base class names it)
        self.asked.append((self.path, self.headers["Range"]))
        if self.headers["Range"] is None:
            super().do_GET()
            return
        with open(self.translate_path(self.path), "rb") as file:
            data = file.read()
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:])

    def log_message(self, *arguments):
        pass


@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class FetchModelTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="deepencoder-fetch-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.site, self.model = os.path.join(self.folder, "site"), os.path.join(self.folder, "model")
        os.mkdir(self.site)
        for name, data in FILES.items():
            self.write(os.path.join(self.site, name), data)
        Handler.asked = []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=self.site))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"

    @staticmethod
    def write(path, data):
        with open(path, "wb") as file:
            file.write(data)

    def fetch(self, sums=None):
        if sums is None:
            sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in FILES.items())
        self.write(os.path.join(self.folder, "SHA256SUMS"), sums.encode())
        return subprocess.run(["bash", SCRIPT, os.path.join(self.folder, "SHA256SUMS"), self.url, self.model],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def there(self):
        found = {}
        for name in os.listdir(self.model):
            with open(os.path.join(self.model, name), "rb") as file:
                found[name] = file.read()
        return found

    def test_a_last_line_without_its_end_counts(self):
        sums = "\n".join(f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in FILES.items())
        result = self.fetch(sums)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(sorted(os.listdir(self.model)), sorted(FILES))

    def test_fetches_once(self):
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.there(), FILES)
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(len(Handler.asked), 2)

    def test_goes_on_where_it_stopped(self):
        os.mkdir(self.model)
        self.write(os.path.join(self.model, ".model.safetensors.part"), FILES["model.safetensors"][:1000])
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.there(), FILES)
        self.assertIn(("/model.safetensors", "bytes=1000-"), Handler.asked)

    def test_whole_part_takes_its_name(self):
        os.mkdir(self.model)
        self.write(os.path.join(self.model, ".model.safetensors.part"), FILES["model.safetensors"])
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.there(), FILES)

    def test_part_of_another_file_is_given_up(self):
        os.mkdir(self.model)
        self.write(os.path.join(self.model, ".config.json.part"), b"longer than the file is now")
        self.assertEqual(self.fetch().returncode, 1)
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.there(), FILES)

    def test_wrong_file_never_gets_its_name(self):
        self.write(os.path.join(self.site, "model.safetensors"), b"something else")
        done = self.fetch()
        self.assertEqual(done.returncode, 1)
        self.assertIn("model.safetensors has the sum", done.stdout)
        self.assertEqual(self.there(), {"config.json": b"{}"})

    def test_damaged_file_is_fetched_again(self):
        self.fetch()
        self.write(os.path.join(self.model, "config.json"), b"{ }")
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.there(), FILES)

    def test_missing_file_is_an_error(self):
        os.remove(os.path.join(self.site, "config.json"))
        done = self.fetch()
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot fetch", done.stdout)

    def test_names_and_sums_that_are_none_are_refused(self):
        for sums in ("", "abc  config.json\n", "0" * 64 + "  ../config.json\n", "0" * 64 + "\n"):
            with self.subTest(sums=sums):
                self.assertEqual(self.fetch(sums).returncode, 2)
                self.assertEqual(Handler.asked, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
