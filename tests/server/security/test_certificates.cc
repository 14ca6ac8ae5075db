#include "tests/server/security/test_certificates.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

namespace deepencoder {
namespace {

void OpenSsl(const std::string& arguments, const std::string& folder) {
  const std::string log = folder + "/openssl.log";
  const int status = std::system(("openssl " + arguments + " >" + log + " 2>&1").c_str());
  EXPECT_EQ(status, 0) << "openssl " << arguments << "\n" << ReadWholeFile(log);
}

std::string NewKey(const std::string& key) { return " -newkey " + key + " -nodes "; }

}  // namespace

TestAuthority::TestAuthority(std::string folder, const std::string& name)
    : folder_(std::move(folder)),
      self_{folder_ + "/" + name + ".pem", folder_ + "/" + name + ".key"} {
  OpenSsl("req -x509" + NewKey(kEcKey) + "-days 2 -subj '/CN=" + name + "' -keyout " + self_.key +
              " -out " + self_.certificate,
          folder_);
}

CertificateFiles TestAuthority::Issue(const std::string& common_name, int days,
                                      const std::string& key) {
  const std::string stem = self_.key + "." + std::to_string(issued_++);
  const CertificateFiles made = {stem + ".pem", stem + ".key"};
  const std::string request = stem + ".csr", extensions = stem + ".ext";
  WriteFile(extensions, "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
  OpenSsl("req -new" + NewKey(key) + "-subj '/CN=" + common_name + "' -keyout " + made.key +
              " -out " + request,
          folder_);
  OpenSsl("x509 -req -in " + request + " -CA " + self_.certificate + " -CAkey " + self_.key +
              " -CAcreateserial -days " + std::to_string(days) + " -extfile " + extensions +
              " -out " + made.certificate,
          folder_);
  return made;
}

void Replace(const CertificateFiles& files, const CertificateFiles& by) {
  WriteFile(files.certificate, ReadWholeFile(by.certificate));
  WriteFile(files.key, ReadWholeFile(by.key));
}

void WriteFile(const std::string& path, const std::string& content, unsigned mode) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << content;
    ASSERT_TRUE(file.flush()) << temporary;
  }
  ASSERT_EQ(chmod(temporary.c_str(), mode), 0);
  ASSERT_EQ(std::rename(temporary.c_str(), path.c_str()), 0);
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace deepencoder
