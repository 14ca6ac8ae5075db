#include "server/rpc/client_identity.h"

#include <gtest/gtest.h>

namespace deepencoder {
namespace {

TEST(ClientIdentityTest, AnAddressHasNoPort) {
  EXPECT_EQ(AddressOf("ipv4:10.0.0.7:4711"), "10.0.0.7");
  EXPECT_EQ(AddressOf("unix:"), "unix");
  EXPECT_EQ(AddressOf("unix:/run/a:b.sock"), "unix");
}

TEST(ClientIdentityTest, AHostIsOneClientWhateverIpv6AddressItTakes) {
  EXPECT_EQ(AddressOf("ipv6:%5B2001:db8:1:2::1%5D:4711"), "2001:db8:1:2::/64");
  EXPECT_EQ(AddressOf("ipv6:[2001:db8:1:2:ffff:1:2:3]:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(AddressOf("ipv6:%5Bfe80::1%25eth0%5D:1"), "fe80::/64");
  EXPECT_EQ(AddressOf("ipv6:%5Bno address%5D:1"), "no address");  // never made by gRPC
}

}  // namespace
}  // namespace deepencoder
