// Certificates of a moment, made by the program openssl: no key lies in the tree.
#pragma once

#include <string>

namespace deepencoder {

struct CertificateFiles {
  std::string certificate, key;  // paths
};

// An authority of its own in a folder of its own.
class TestAuthority {
 public:
  // `folder` must exist. Test failures if openssl does not do it.
  TestAuthority(std::string folder, const std::string& name);

  const std::string& certificate() const { return self_.certificate; }  // path

  // For 127.0.0.1 and localhost, as a server's or a client's; of `days` from now. `key`: as `openssl req -newkey`
  // takes it, with its options.
  CertificateFiles Issue(const std::string& common_name, int days = 2,
                         const std::string& key = kEcKey);

  static constexpr char kEcKey[] = "ec -pkeyopt ec_paramgen_curve:P-256";

 private:
  std::string folder_;
  CertificateFiles self_;
  int issued_ = 0;
};

// Puts the files' contents in place of others, each at once.
void Replace(const CertificateFiles& files, const CertificateFiles& by);
void WriteFile(const std::string& path, const std::string& content, unsigned mode = 0600);
std::string ReadWholeFile(const std::string& path);

}  // namespace deepencoder
