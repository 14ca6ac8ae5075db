// Connections of clients that speak no more than a test wants.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace deepencoder {

// A plain connection that says nothing.
class SilentConnection {
 public:
  // `from`: whose address of this machine it comes from, 127.0.0.`from`.
  explicit SilentConnection(const std::string& address, uint32_t from = 1)
      : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~uint32_t{0xFF}) | from);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  SilentConnection(SilentConnection&& other) noexcept : socket_(other.socket_) {
    other.socket_ = -1;
  }
  SilentConnection& operator=(SilentConnection&&) = delete;
  ~SilentConnection() {
    if (socket_ >= 0) close(socket_);
  }

  // The server speaks first over HTTP/2, or closes the connection.
  bool IsLetIn() const {
    char first;
    return recv(socket_, &first, 1, 0) == 1;
  }

  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(socket_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  // Reads what there is, and answers nothing.
  bool HasEnded() const {
    char some[4096];
    ssize_t read;
    do read = recv(socket_, some, sizeof(some), MSG_DONTWAIT);
    while (read > 0);
    return read == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
};

inline std::string Frame(char type, char flags, char stream, const std::string& payload) {
  const auto size = static_cast<char>(payload.size());
  return std::string({0, 0, size, type, flags, 0, 0, 0, stream}) + payload;
}

// What a client sends to begin a call, without a message (RFC 9113, 3.4 and 6; RFC 7541, 6).
inline std::string BeginningOfCall(const std::string& path) {
  constexpr char kHeaders = 1, kSettings = 4, kEndHeaders = 4;
  const auto text = [](const std::string& value) {
    return static_cast<char>(value.size()) + value;
  };
  const std::string headers = "\x83\x86" +                               // POST, http
                              ("\x04" + text(path)) +                    //
                              ("\x01" + text("localhost")) +             // :authority
                              ("\x0F\x10" + text("application/grpc")) +  // content-type
                              (std::string(1, '\0') + text("te") + text("trailers"));
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "") +
         Frame(kHeaders, kEndHeaders, 1, headers);
}

}  // namespace deepencoder
