#include "server/security/tls_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "tests/server/security/test_certificates.h"
#include "tests/work_folder.h"

namespace deepencoder {
namespace {

using testing::HasSubstr;

class TlsFilesTest : public testing::Test {
 protected:
  static std::string Folder() {
    std::string folder = WorkFolder() + "/tls_files";
    std::filesystem::create_directories(folder);
    return folder;
  }

  static std::string ErrorOf(const TlsPaths& paths) {
    const auto files = LoadTlsFiles(paths);
    EXPECT_FALSE(files.ok());
    return std::string(files.status().message());
  }

  TestAuthority authority_{Folder(), "authority"};
  CertificateFiles server_ = authority_.Issue("server");
  TlsPaths good_ = {server_.certificate, server_.key, authority_.certificate()};
};

TEST_F(TlsFilesTest, LoadsAPairAndItsAuthority) {
  const auto files = LoadTlsFiles(good_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->certificate, ReadWholeFile(server_.certificate));
  EXPECT_EQ(files->key, ReadWholeFile(server_.key));
  EXPECT_EQ(files->client_ca, ReadWholeFile(authority_.certificate()));
  EXPECT_GT(files->not_after, absl::Now() + absl::Hours(24));
  EXPECT_LT(files->not_after, absl::Now() + absl::Hours(72));
  const auto without = LoadTlsFiles({server_.certificate, server_.key, ""});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->client_ca, "");
  // A chain: the authority's own behind the server's.
  const std::string chain = Folder() + "/chain.pem";
  WriteFile(chain, files->certificate + files->client_ca);
  EXPECT_TRUE(LoadTlsFiles({chain, server_.key, ""}).ok());
}

TEST_F(TlsFilesTest, SaysWhatIsWrong) {
  const CertificateFiles other = authority_.Issue("other");
  EXPECT_THAT(ErrorOf({server_.certificate, other.key, ""}), HasSubstr("not the key of"));
  const std::string broken = Folder() + "/broken.pem";
  const std::string certificate = ReadWholeFile(server_.certificate);
  // Written in part, and damaged inside.
  WriteFile(broken, certificate.substr(0, certificate.size() / 2));
  EXPECT_THAT(ErrorOf({broken, server_.key, ""}), HasSubstr("broken.pem: no PEM certificate"));
  WriteFile(broken, certificate + certificate.substr(0, certificate.size() / 2));
  EXPECT_THAT(ErrorOf({broken, server_.key, ""}), HasSubstr("broken.pem: no PEM certificate"));
  WriteFile(broken, "");
  EXPECT_THAT(ErrorOf({broken, server_.key, ""}), HasSubstr("broken.pem: no PEM certificate"));
  EXPECT_THAT(ErrorOf({server_.certificate, broken, ""}), HasSubstr("no PEM private key"));
  EXPECT_THAT(ErrorOf({server_.certificate, server_.key, broken}), HasSubstr("broken.pem"));
  EXPECT_THAT(ErrorOf({server_.certificate, Folder() + "/none.key", ""}), HasSubstr("none.key"));
  const std::string open = Folder() + "/open.key";
  WriteFile(open, ReadWholeFile(server_.key), 0644);
  EXPECT_THAT(ErrorOf({server_.certificate, open, ""}), HasSubstr("chmod 600"));
}

// At the security level of 2, which is the system's default, gRPC would refuse it at each connection.
TEST_F(TlsFilesTest, AKeyThatTlsDoesNotTakeIsRefused) {
  const CertificateFiles weak = authority_.Issue("weak", 2, "rsa:1024");
  EXPECT_THAT(ErrorOf({weak.certificate, weak.key, ""}),
              HasSubstr("refused by the TLS library: ee key too small"));
  const CertificateFiles strong = authority_.Issue("strong", 2, "rsa:2048");
  EXPECT_TRUE(LoadTlsFiles({strong.certificate, strong.key, ""}).ok());
}

TEST_F(TlsFilesTest, AnExpiredCertificateIsRefused) {
  const CertificateFiles old = authority_.Issue("old", -1);
  EXPECT_THAT(ErrorOf({old.certificate, old.key, ""}), HasSubstr("expired at 20"));
}

}  // namespace
}  // namespace deepencoder
