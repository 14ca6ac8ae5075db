#include "server/rpc/peer_network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

namespace deepencoder {
namespace {

sockaddr_storage Parsed(const std::string& address) {
  sockaddr_storage peer{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(peer);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(peer);
  if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    peer.ss_family = AF_INET;
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr), 1) << address;
    peer.ss_family = AF_INET6;
  }
  return peer;
}

std::optional<uint64_t> Of(const std::string& address) { return PeerNetwork(Parsed(address)); }

TEST(PeerNetworkTest, AnIpv4AddressIsOneWhicheverSocketTakesIt) {
  EXPECT_EQ(Of("10.0.0.7"), Of("::ffff:10.0.0.7"));
  EXPECT_NE(Of("10.0.0.7"), Of("10.0.0.8"));
  EXPECT_NE(Of("::ffff:10.0.0.7"), Of("::ffff:10.0.0.8"));
}

TEST(PeerNetworkTest, OfIpv6TheFirst64BitsCount) {
  EXPECT_EQ(Of("2001:db8:1:2::3"), Of("2001:db8:1:2:ffff::4"));
  EXPECT_NE(Of("2001:db8:1:2::3"), Of("2001:db8:1:3::3"));
  EXPECT_NE(Of("::1"), Of("0.0.0.1"));
}

TEST(PeerNetworkTest, AUnixSocketHasNone) {
  sockaddr_storage peer{};
  peer.ss_family = AF_UNIX;
  EXPECT_EQ(PeerNetwork(peer), std::nullopt);
  EXPECT_FALSE(IsLoopback(peer));
}

TEST(PeerNetworkTest, KnowsLoopback) {
  for (const char* address : {"127.0.0.1", "127.255.0.9", "::ffff:127.0.0.1", "::1"}) {
    EXPECT_TRUE(IsLoopback(Parsed(address))) << address;
  }
  for (const char* address :
       {"126.255.255.255", "128.0.0.1", "0.0.0.0", "::ffff:10.0.0.7", "::", "::2", "::7f00:1"}) {
    EXPECT_FALSE(IsLoopback(Parsed(address))) << address;
  }
}

}  // namespace
}  // namespace deepencoder
