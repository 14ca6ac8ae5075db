#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/engine/thread_name.h"

namespace deepencoder {
namespace {

constexpr int kAtOnce = 64;      // connections of one socket before the next one's turn
constexpr int kSweepMs = 1000;   // how old the count of connections may be
constexpr int kNoMemoryMs = 10;  // before the next try
constexpr int kWaitForEver = -1;

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Create(
    std::vector<ConnectionSource> sources, int64_t max_connections, RpcObserver* observer) {
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int spare = OpenSpare();
  if (wake < 0 || spare < 0) {
    return absl::UnavailableError(
        absl::StrCat("no descriptor for the listener: ", std::strerror(errno)));
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(sources), max_connections, observer, wake, spare));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<ConnectionSource> sources,
                                       int64_t max_connections, RpcObserver* observer, int wake,
                                       int spare)
    : sources_(std::move(sources)),
      max_connections_(max_connections),
      observer_(observer),
      wake_(wake),
      spare_(spare) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
  close(wake_);
  if (spare_ >= 0) close(spare_);
}

void ConnectionAcceptor::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  sources_.clear();
}

void ConnectionAcceptor::Run() {
  NameThisThread("accept");
  std::vector<pollfd> waiting;
  for (const ConnectionSource& source : sources_) {
    waiting.push_back({source.socket.descriptor(), POLLIN, 0});
  }
  waiting.push_back({wake_, POLLIN, 0});
  while (true) {
    const int ready = poll(waiting.data(), waiting.size(), open_.empty() ? kWaitForEver : kSweepMs);
    if ((waiting.back().revents & POLLIN) != 0) return;
    if (ready <= 0) {
      Sweep();
      continue;
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (waiting[i].revents != 0) AcceptAll(sources_[i]);
    }
  }
}

void ConnectionAcceptor::AcceptAll(const ConnectionSource& source) {
  for (int i = 0; i < kAtOnce; ++i) {
    const int connection =
        accept4(source.socket.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) {
      Take(source, connection);
    } else if (errno == EMFILE || errno == ENFILE) {
      RefuseWithoutDescriptors(source);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      poll(nullptr, 0, kNoMemoryMs);
      return;
    }
    // Anything else is that one connection's: it ended before it was accepted.
  }
}

void ConnectionAcceptor::Take(const ConnectionSource& source, int connection) {
  if (static_cast<int64_t>(open_.size()) >= max_connections_) Sweep();
  struct stat status {};
  if (static_cast<int64_t>(open_.size()) >= max_connections_ || fstat(connection, &status) != 0) {
    close(connection);
    return Refused(ConnectionRefusal::kLimit);
  }
  if (!source.socket.is_unix()) {
    const int yes = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  open_[connection] = status.st_ino;
  if (observer_ != nullptr) observer_->OnConnections(static_cast<int64_t>(open_.size()));
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = source.socket.descriptor();
  parameters.fd = connection;
  source.sink->HandleNewConnection(&parameters);
}

void ConnectionAcceptor::RefuseWithoutDescriptors(const ConnectionSource& source) {
  // Left in the queue, the connection would keep the socket ready and this thread turning.
  if (spare_ >= 0) {
    close(spare_);
    const int connection = accept4(source.socket.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) close(connection);
    spare_ = OpenSpare();
    Refused(ConnectionRefusal::kDescriptors);
  } else {  // somebody else was quicker to take it: wait for one
    poll(nullptr, 0, kNoMemoryMs);
    spare_ = OpenSpare();
  }
}

void ConnectionAcceptor::Sweep() {
  std::erase_if(open_, [](const auto& connection) {
    struct stat status {};
    return fstat(connection.first, &status) != 0 || status.st_ino != connection.second;
  });
  if (observer_ != nullptr) observer_->OnConnections(static_cast<int64_t>(open_.size()));
}

void ConnectionAcceptor::Refused(ConnectionRefusal why) const {
  if (observer_ != nullptr) observer_->OnConnectionRefused(why);
}

}  // namespace deepencoder
