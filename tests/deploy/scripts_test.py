#!/usr/bin/env python3
"""What the deployment's scripts refuse, and what they make of the paths that they are given."""
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


class ReleaseTest(unittest.TestCase):
    """release.sh in a tree of its own, with a program that says which commit it is from."""

    def setUp(self):
        self.tree = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.tree)
        os.mkdir(self.path("deploy"))
        shutil.copy(os.path.join(SOURCE, "deploy", "release.sh"), self.path("deploy"))
        write(self.path("deploy/bundle.sh"), 'mkdir -p "$1/b" && touch "$1/b.tar.xz" "$1/b/sbom.cdx.json"\n')
        write(self.path("deploy/helm/Chart.yaml"), "version: 0\nappVersion: 0\n")
        write(self.path(".gitignore"), "build/\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "first")

    def path(self, name):
        return os.path.join(self.tree, name)

    def git(self, *arguments):
        done = subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments],
                              cwd=self.tree, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def release(self, commit, **environment):
        """As if the programs had been built from `commit`."""
        write(self.path("build/bin/deepencoder-server"), f"#!/bin/sh\necho 'deepencoder-server 0.1.0 ({commit})'\n", 0o755)
        return subprocess.run(["bash", self.path("deploy/release.sh")], env={**os.environ, **environment}, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def head(self):
        return self.git("rev-parse", "--short=12", "HEAD")

    def test_releases_the_commit_that_was_built(self):
        done = self.release(self.head())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("deepencoder-0.1.0.tgz", done.stdout)

    def test_refuses_programs_of_an_earlier_commit(self):
        built = self.head()
        self.git("commit", "-q", "--allow-empty", "-m", "second")
        done = self.release(built)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"was built from '{built}', but HEAD is", done.stdout)

    def test_refuses_a_tree_with_changes(self):
        write(self.path("deploy/helm/values.yaml"), "replicas: 3\n")
        done = self.release(self.head())
        self.assertEqual(done.returncode, 1)
        self.assertIn("the tree has changes", done.stdout)
        done = self.release(self.head(), ALLOW_CHANGES="1")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_refuses_programs_of_no_commit(self):
        for commit in ("unknown", self.head() + "+changes"):
            done = self.release(commit)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"was built from '{commit}', but HEAD is", done.stdout)


class QuickstartTest(unittest.TestCase):
    def test_paths_are_of_the_callers_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            write(os.path.join(folder, "page.jpg"), "bytes")
            for arguments, answer in ((["--image", "none.jpg"], f"cannot read the image {folder}/none.jpg"),
                                      (["--image", "page.jpg", "--model", "none"], f"no folder {folder}/none")):
                done = subprocess.run(["bash", os.path.join(SOURCE, "deploy", "quickstart.sh"), *arguments], cwd=folder,
                                      check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertIn(answer, done.stdout)


if __name__ == "__main__":
    unittest.main()
