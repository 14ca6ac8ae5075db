"""The built programs and the CUDA backend, if it was built, have the defences that the build asks for: looked at
with readelf in the files themselves, since a flag that the compiler or linker drops is dropped in silence."""

import os
import re
import subprocess
import sys
import unittest

SERVER = os.environ["DEEPENCODER_SERVER_PROGRAM"]
CLIENT = os.environ["DEEPENCODER_CLIENT_PROGRAM"]
BUILD = os.environ["DEEPENCODER_BUILD_DIR"]
CUDA = os.path.join(BUILD, "lib", "libdeepencoder_cuda.so")
PROGRAMS = [SERVER, CLIENT]
FILES = PROGRAMS + ([CUDA] if os.path.exists(CUDA) else [])
# Folders that the CUDA backend may name: its own, and where CUDA's libraries are installed.
CUDA_FOLDERS = re.compile(r"^(\$ORIGIN(/lib)?|/usr/local/cuda(-[0-9.]+)?/(lib|lib64|targets/[^/]+/lib))$")


def readelf(*args):
    return subprocess.run(["readelf", "--wide", *args], check=True, capture_output=True, text=True).stdout


class Hardening(unittest.TestCase):
    def test_programs_are_position_independent(self):
        for path in PROGRAMS:
            with self.subTest(path):
                self.assertIn("DYN", readelf("--file-header", path))
                self.assertRegex(readelf("--dynamic", path), r"FLAGS_1.*\bPIE\b")

    def test_relocations_are_resolved_at_the_start_and_read_only_then(self):
        for path in FILES:
            with self.subTest(path):
                self.assertIn("GNU_RELRO", readelf("--segments", path))
                self.assertRegex(readelf("--dynamic", path), r"FLAGS_1.*\bNOW\b")
                self.assertNotIn("TEXTREL", readelf("--dynamic", path))

    def test_no_segment_is_writable_and_executable(self):
        for path in FILES:
            with self.subTest(path):
                segments = re.findall(r"^  (\w+) +0x\S+ 0x\S+ 0x\S+ 0x\S+ 0x\S+ ([RWE ]{3}) ", readelf("--segments", path),
                                      re.MULTILINE)
                self.assertTrue(segments)
                self.assertIn("GNU_STACK", [name for name, _ in segments])
                for name, flags in segments:
                    self.assertFalse("W" in flags and "E" in flags, f"{name} is {flags}")
                self.assertEqual(dict(segments)["GNU_STACK"].strip(), "RW")

    def test_libraries_come_from_where_the_loader_looks_anyway(self):
        for path in PROGRAMS:
            with self.subTest(path):
                self.assertNotRegex(readelf("--dynamic", path), r"\((RPATH|RUNPATH)\)")
        if CUDA in FILES:
            found = re.search(r"\(RUNPATH\).*\[(.*)\]", readelf("--dynamic", CUDA))
            for folder in found.group(1).split(":") if found else []:
                self.assertRegex(folder, CUDA_FOLDERS)

    def test_stacks_have_guards_and_buffers_are_fortified(self):
        for path in FILES:
            with self.subTest(path):
                self.assertIn("__stack_chk_fail", readelf("--dyn-syms", path))
        for path in PROGRAMS:
            with self.subTest(path):
                self.assertRegex(readelf("--dyn-syms", path), r" __\w+_chk@GLIBC")

    def test_indirect_branches_have_landing_pads(self):
        # In our own objects. In the programs the mark is there only if every library has it, and Debian's have not.
        notes = readelf("--notes", os.path.join(BUILD, "server", "engine", "libdeepencoder_engine.a"))
        objects = notes.count("File: ") or 1
        if "x86 feature" not in notes and os.uname().machine != "x86_64":
            self.skipTest("only on x86-64")
        self.assertEqual(len(re.findall(r"x86 feature: IBT, SHSTK", notes)), objects)

    def test_no_folder_of_the_build_machine_is_in_the_programs(self):
        source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        for path in PROGRAMS:
            with self.subTest(path), open(path, "rb") as file:
                self.assertNotIn(source.encode() + b"/", file.read())


if __name__ == "__main__":
    if os.environ.get("DEEPENCODER_HARDENED") != "1":
        print("built without DEEPENCODER_HARDEN, or with a sanitizer")
        sys.exit(77)
    unittest.main(verbosity=2)
