"""The queue model against what queueing theory knows."""
import argparse
import math
import unittest

import queue_model


def options(**given):
    known = dict(times={512: queue_model.Times({1: 10.0})}, views={512: 1}, buckets=[1], slots=1, decode=0.0, decode_threads=8,
                 overhead=0.0, spread=0.0, exact=False, large=math.inf, seed=1, images=40000)
    return argparse.Namespace(**known | given)


def latencies(rate, **given):
    chosen = options(**given)
    return queue_model.Simulation(chosen).run(rate, chosen.images)


def mean(values):
    return sum(values) / len(values)


class QueueModelTest(unittest.TestCase):
    def test_one_server_with_a_constant_time(self):
        # Pollaczek and Khinchine: the mean wait is rho / (2 (1 - rho)) times the service.
        for rho in (0.3, 0.6, 0.8):
            self.assertAlmostEqual(mean(latencies(rho * 100)) / (10 * (1 + rho / (2 * (1 - rho)))), 1, delta=0.03)

    def test_a_lone_image_waits_for_nothing(self):
        alone = latencies(0.01, images=100, decode=3.0, overhead=0.5, slots=2)
        self.assertAlmostEqual(max(alone), 13.5)
        self.assertAlmostEqual(min(alone), 13.5)

    def test_slots_that_share_a_device_do_not_add_to_it(self):
        # Processor sharing has the mean wait of exponential service: rho / (1 - rho), whatever the service is.
        self.assertAlmostEqual(mean(latencies(50, slots=10**6)) / 20, 1, delta=0.03)

    def test_large_batches_run_one_after_another(self):
        # However many slots there are, it is one server with a line: the mean of Pollaczek and Khinchine again.
        self.assertAlmostEqual(mean(latencies(50, slots=10**6, large=1)) / 15, 1, delta=0.03)
        # Those that are not large share it with the one that is at work.
        simulation = queue_model.Simulation(options(large=32 * 32 * 4))
        self.assertEqual([simulation.is_large(512, size) for size in (1, 3, 4, 8)], [False, False, True, True])

    def test_batches_carry_more_than_single_images(self):
        batched = dict(times={512: queue_model.Times({1: 10.0, 8: 20.0})}, buckets=[1, 2, 4, 8], images=5000)
        self.assertLess(queue_model.quantile(latencies(300, **batched), 0.99), 60)

    def test_batch_sizes_follow_the_servers_policy(self):
        simulation = queue_model.Simulation(options(buckets=[1, 2, 4, 8]))
        self.assertEqual([simulation.batch_size(waiting) for waiting in range(1, 10)], [1, 2, 3, 4, 4, 6, 7, 8, 8])

    def test_an_image_of_many_views_does_not_block_a_small_one(self):
        line = queue_model.Line()
        line.add("large", 30, 0)
        line.add("small", 1, 1)
        self.assertEqual(line.take(4, iter(range(2, 9))), {"large": 3, "small": 1})
        self.assertEqual((line.views, line.head()), (27, 2))

    def test_times_between_and_beyond_the_measured(self):
        times = queue_model.Times({1: 10, 4: 16, 8: 20})
        self.assertEqual([times(size) for size in (1, 2, 4, 6, 16)], [10, 12, 16, 18, 28])


if __name__ == "__main__":
    unittest.main()
