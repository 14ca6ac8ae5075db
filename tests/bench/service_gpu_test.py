"""What service_gpu.py makes of a trace, and capacity_table.py of its results."""
import array
import pathlib
import tempfile
import unittest

import capacity_table
import service_gpu

SECOND = 10**9


def gaps_of(work, load_seconds):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace"
        path.write_bytes(array.array("Q", [time for interval in work for time in interval]).tobytes())
        return service_gpu.idle_gaps(path, load_seconds)


class IdleGapsTest(unittest.TestCase):
    def test_overlapping_work_leaves_only_real_gaps(self):
        # Ten seconds of load from 100 s on, of which 102 s to 108.5 s count; two slots, intervals out of order as buffers come.
        work = [(104 * SECOND, 110 * SECOND), (100 * SECOND, 103 * SECOND), (103 * SECOND + 2000, 103 * SECOND + 500_000_000),
                (102 * SECOND, 103 * SECOND + 1000), (1 * SECOND, 2 * SECOND)]
        gaps, span = gaps_of(work, 10)
        self.assertEqual(gaps, [0.5, 1e-6])
        self.assertAlmostEqual(span, 6.5)

    def test_gaps_outside_of_the_middle_do_not_count(self):
        work = [(0, SECOND), (2 * SECOND, 9 * SECOND), (int(9.5 * SECOND), 10 * SECOND)]
        self.assertEqual(gaps_of(work, 10)[0], [])


class CapacityTableTest(unittest.TestCase):
    def test_parts_that_were_not_measured_are_left_out(self):
        self.assertEqual(capacity_table.Page([]).text(), "")
        text = capacity_table.Page([{"name": "base: saturation with 2 GPUs", "ours": 812.34, "peer": 421.0, "ratio": 1.9296}]).text()
        self.assertEqual(text, "| mode | GPUs | images/s | of one GPU | ratio |\n| --- | --- | --- | --- | --- |\n"
                               "| base | 2 | 812 | 421 | 1.93 |\n")

    def test_saturation_takes_both_of_its_rows(self):
        rows = [{"name": "base: saturation", "ours": 400.0, "ratio": 0.95, "mean_batch": {"1024": 31.5}},
                {"name": "base: processors at saturation", "ours": 3.21, "decode_threads_busy": 1.75}]
        self.assertEqual(capacity_table.Page(rows).text().splitlines()[-1],
                         "| base | 400 | 2.50 ms | 0.950 | 1024: 31.5 | 1.75 | 3.21 |")


if __name__ == "__main__":
    unittest.main()
