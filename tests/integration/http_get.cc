#include "tests/integration/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace deepencoder {

std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string answer;
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char part[4096];
    for (ssize_t got = 0; (got = recv(fd, part, sizeof(part), 0)) > 0;) {
      answer.append(part, static_cast<size_t>(got));
    }
  }
  close(fd);
  return answer;
}

}  // namespace deepencoder
