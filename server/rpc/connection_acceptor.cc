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
#include "server/rpc/peer_network.h"

namespace deepencoder {
namespace {

constexpr int kAtOnce = 64;      // connections of one socket before the next one's turn
constexpr int kSweepMs = 1000;   // how old the count of connections may be
constexpr int kNoMemoryMs = 10;  // before the next try
constexpr int kWaitForEver = -1;
// Of a unix socket, in bytes; the kernel gives twice that, but no more than twice net.core.wmem_max. Its
// own 208 KB are filled and drained 15 times for a reply of 2.3 MB, with a wake-up on each side every time;
// this is once, and holds no more than TCP's buffer grows to by default. Calls one after the other then took
// 0.85 to 0.93 of the time, those with replies of 0.7 MB 0.90.
constexpr int kUnixSendBuffer = 2 << 20;
// Every Linux has it, and lets every process choose it.
constexpr char kUnpacedCongestion[] = "reno";

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// For replies of megabytes. Where the kernel refuses, they are slower, but go.
void Tune(int connection, bool is_unix, const sockaddr_storage& peer) {
  if (is_unix) {
    setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &kUnixSendBuffer, sizeof(kUnixSendBuffer));
    return;
  }
  const int yes = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  // BBR, where it is the host's default, paces what it sends to what it thinks of the path: within a
  // machine, where there is none, a call with a reply of 2.3 MB took 1.2 times as long as with Reno or CUBIC.
  if (IsLoopback(peer)) {
    setsockopt(connection, IPPROTO_TCP, TCP_CONGESTION, kUnpacedCongestion,
               std::strlen(kUnpacedCongestion));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Create(
    std::vector<ConnectionSource> sources, const ConnectionLimits& limits, RpcObserver* observer) {
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int spare = OpenSpare();
  if (wake < 0 || spare < 0) {
    return absl::UnavailableError(
        absl::StrCat("no descriptor for the listener: ", std::strerror(errno)));
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(sources), limits, observer, wake, spare));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<ConnectionSource> sources,
                                       const ConnectionLimits& limits, RpcObserver* observer,
                                       int wake, int spare)
    : sources_(std::move(sources)),
      limits_(limits),
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
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const int connection = accept4(source.socket.descriptor(), reinterpret_cast<sockaddr*>(&peer),
                                   &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) {
      Take(source, connection, peer);
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

std::optional<ConnectionRefusal> ConnectionAcceptor::Excess(std::optional<uint64_t> network) const {
  if (static_cast<int64_t>(open_.size()) >= limits_.all) return ConnectionRefusal::kLimit;
  const auto same = network ? of_network_.find(*network) : of_network_.end();
  if (same != of_network_.end() && same->second >= limits_.of_address) {
    return ConnectionRefusal::kAddress;
  }
  return std::nullopt;
}

void ConnectionAcceptor::Remember(int descriptor, const Connection& connection) {
  const auto [place, added] = open_.try_emplace(descriptor, connection);
  if (!added) {  // one that ended meanwhile had the number
    Forget(place->second.network);
    place->second = connection;
  }
  if (connection.network) ++of_network_[*connection.network];
}

void ConnectionAcceptor::Forget(std::optional<uint64_t> network) {
  if (!network) return;
  const auto count = of_network_.find(*network);
  if (--count->second == 0) of_network_.erase(count);
}

void ConnectionAcceptor::Take(const ConnectionSource& source, int connection,
                              const sockaddr_storage& peer) {
  const std::optional<uint64_t> network = PeerNetwork(peer);
  if (Excess(network)) Sweep();
  struct stat status {};
  const std::optional<ConnectionRefusal> excess =
      fstat(connection, &status) == 0 ? Excess(network) : ConnectionRefusal::kDescriptors;
  if (excess) {
    close(connection);
    return Refused(*excess);
  }
  Tune(connection, source.socket.is_unix(), peer);
  Remember(connection, {status.st_ino, network});
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
  std::erase_if(open_, [this](const auto& connection) {
    struct stat status {};
    const bool ended =
        fstat(connection.first, &status) != 0 || status.st_ino != connection.second.inode;
    if (ended) Forget(connection.second.network);
    return ended;
  });
  if (observer_ != nullptr) observer_->OnConnections(static_cast<int64_t>(open_.size()));
}

void ConnectionAcceptor::Refused(ConnectionRefusal why) const {
  if (observer_ != nullptr) observer_->OnConnectionRefused(why);
}

}  // namespace deepencoder
