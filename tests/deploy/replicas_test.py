#!/usr/bin/env python3
"""Three servers behind one round-robin channel: load spreads, the death of one costs the calls that it held and no
other, and the retry policy of deploy/service-config.json repeats those elsewhere."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    import grpc
except ImportError:
    print("skipped: python3-grpcio is not installed")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import processes  # noqa: E402

SERVICE_CONFIG = os.path.join(processes.SOURCE, "deploy", "service-config.json")
# Over gRPC's 256 KiB for what it keeps to send again, which service-config.json cannot raise: the channel must.
IMAGE = os.path.join(processes.IMAGES, "photo_scene.jpg")
RETRY_BUFFER = 64 << 20


def compile_messages(folder):
    subprocess.run(["protoc", f"--proto_path={processes.SOURCE}/proto", f"--python_out={folder}",
                    "deepencoder/v1/vision_encoder.proto", "deepencoder/v1/shared_memory.proto"], check=True)
    sys.path.insert(0, folder)
    from deepencoder.v1 import vision_encoder_pb2  # pylint: disable=import-outside-toplevel
    return vision_encoder_pb2


class ReplicasTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="deepencoder-replicas-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.messages = compile_messages(cls.folder)
        cls.model = processes.synthesize(os.path.join(cls.folder, "model"))
        with open(SERVICE_CONFIG, encoding="utf-8") as file:
            cls.service_config = file.read()
        with open(IMAGE, "rb") as file:
            image = file.read()
        assert len(image) > 256 << 10
        cls.request = cls.messages.EncodeImageRequest(encoded=image, mode=cls.messages.MODE_TINY)

    def setUp(self):
        self.servers = [self.start(f"server{i}") for i in range(3)]
        self.warm_calls = 0
        for server in self.servers:
            server.wait_until_serving()

    def start(self, name, listen="127.0.0.1:0"):
        server = processes.Server(self.model, self.folder, "--modes=tiny", "--batch-buckets=1,2",
                                  "--decode-threads=1", name=name, listen=listen)
        self.addCleanup(server.kill)
        return server

    def channel(self, retries):
        """One channel to all servers, connected to each."""
        channel = grpc.insecure_channel("ipv4:" + ",".join(server.address for server in self.servers), options=[
            ("grpc.service_config", self.service_config), ("grpc.enable_retries", int(retries)),
            ("grpc.per_rpc_retry_buffer_size", RETRY_BUFFER), ("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        encode = channel.unary_unary("/deepencoder.v1.VisionEncoder/EncodeImage",
                                     request_serializer=self.messages.EncodeImageRequest.SerializeToString,
                                     response_deserializer=self.messages.EncodeImageResponse.FromString)
        self.connect(encode)
        return encode

    def connect(self, encode):
        """Calls until every server has had one of these, so that round robin has all of them to choose from."""
        before = self.answered()

        def all_reached():
            encode(self.request, timeout=30, wait_for_ready=True)
            self.warm_calls += 1
            return all(now > then for now, then in zip(self.answered(), before))
        processes.wait_for("every server reached", all_reached)

    def answered(self):
        return [server.metric("deepencoder_requests_total", method="EncodeImage", code="OK") for server in self.servers]

    def settled(self, calls):
        """As answered(), once all of `calls` are in it: a call is counted just after its client has the reply."""
        processes.wait_for(f"{calls} calls counted", lambda: sum(self.answered()) >= calls)
        return self.answered()

    def outcomes(self, calls):
        """How many calls ended with each status; a reply must be whole."""
        counts = {}
        for call in calls:
            code = call.code()
            counts[code] = counts.get(code, 0) + 1
            if code == grpc.StatusCode.OK:
                self.assertEqual(list(call.result().shape), [73, 1280])
                self.assertEqual(len(call.result().data), 73 * 1280 * 2)
        return counts

    def hold_calls(self, encode, count):
        """Starts `count` calls with server 1 stopped; returns them, and those that it holds once all others are done."""
        self.servers[1].signal(signal.SIGSTOP)
        calls = [encode.future(self.request, timeout=100) for _ in range(count)]
        processes.wait_for("the other servers' calls done",
                           lambda: sum(call.done() for call in calls) >= count - count // 3)
        return calls, [call for call in calls if not call.done()]

    def test_load_spreads(self):
        encode = self.channel(retries=False)
        before = self.settled(self.warm_calls)
        calls = [encode.future(self.request, timeout=100) for _ in range(30)]
        self.assertEqual(self.outcomes(calls), {grpc.StatusCode.OK: 30})
        shares = [now - then for now, then in zip(self.settled(self.warm_calls + 30), before)]
        self.assertEqual(shares, [10, 10, 10])

    def test_death_costs_the_calls_that_were_held_and_no_other(self):
        encode = self.channel(retries=False)
        calls, held = self.hold_calls(encode, 12)
        self.servers[1].kill()
        self.assertEqual(self.outcomes(held), {grpc.StatusCode.UNAVAILABLE: 4})
        later = [encode.future(self.request, timeout=100) for _ in range(12)]
        self.assertEqual(self.outcomes([call for call in calls if call not in held]), {grpc.StatusCode.OK: 8})
        self.assertEqual(self.outcomes(later), {grpc.StatusCode.OK: 12})

    def test_retry_policy_repeats_the_calls_that_were_held(self):
        encode = self.channel(retries=True)
        calls, held = self.hold_calls(encode, 12)
        self.servers[1].kill()
        self.assertEqual(len(held), 4)
        self.assertEqual(self.outcomes(calls), {grpc.StatusCode.OK: 12})

    def test_rolling_restart_fails_no_call(self):
        encode = self.channel(retries=True)
        calls = []
        for i, server in enumerate(self.servers):
            calls += [encode.future(self.request, timeout=100) for _ in range(9)]
            server.signal(signal.SIGTERM)
            calls += [encode.future(self.request, timeout=100) for _ in range(9)]
            self.assertEqual(server.wait(), 0, server.log())
            self.servers[i] = self.start(f"server{i}-again", listen=server.address)
            self.servers[i].wait_until_serving()
            self.connect(encode)
        self.assertEqual(self.outcomes(calls), {grpc.StatusCode.OK: 54})


if __name__ == "__main__":
    unittest.main(verbosity=2)
