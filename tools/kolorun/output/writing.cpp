// SPDX-License-Identifier: Apache-2.0
#include "writing.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/process_limits.hpp"

namespace kolorun {

struct Destination {
  int descriptor;
  std::string name;              // for messages
  node::FileDescriptor owned{};  // if it is not kolorun's own output
};

namespace {

// More unwritten output than this stops reading from ranks, which then wait.
constexpr std::size_t max_unwritten = 1 << 20;

std::atomic<bool> lost_output{false};

void report_loss(const Destination& lost, int error);

/// Returns 0, or the error that stopped writing.
int write_now(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(to, text.data(), text.size());
    if (bytes >= 0) {
      text.remove_prefix(static_cast<std::size_t>(bytes));
    } else if (errno == EAGAIN) {
      pollfd waits{.fd = to, .events = POLLOUT, .revents = 0};
      ::poll(&waits, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

/// True if output is lost. A reader that is gone does not count, since it wants no more output.
bool is_loss(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG;
}

/// True if a signal to end this process is pending.
bool is_to_end() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGINT) == 1 || ::sigismember(&pending, SIGTERM) == 1 ||
         ::sigismember(&pending, SIGHUP) == 1;
}

struct Piece {
  std::shared_ptr<Destination> to;
  std::string text;
};

/// Writes in a thread of its own, because the reader of the output may pause, and a file system may
/// be slow. Thread-safe.
class Writer {
 public:
  void add(const std::shared_ptr<Destination>& to, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (pieces_.empty() || pieces_.back().to != to) pieces_.push_back({to, {}});
    pieces_.back().text += text;
    bytes_ += text.size();
    if (!std::exchange(begun_, true)) std::thread([this] { run(); }).detach();
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t size() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  /// Waits until all text is written, or a signal to end arrives.
  void flush() {
    std::unique_lock lock(mutex_);
    while ((writes_ || !pieces_.empty()) && !is_to_end())
      changed_.wait_for(lock, std::chrono::milliseconds(100));
  }

 private:
  void run() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !pieces_.empty(); });
      const std::vector<Piece> pieces = std::exchange(pieces_, {});
      bytes_ = 0;
      writes_ = true;
      lock.unlock();
      for (const auto& [to, text] : pieces)
        if (const int error = write_now(to->descriptor, text); is_loss(error))
          report_loss(*to, error);
      lock.lock();
      writes_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_{};
  std::condition_variable changed_{};
  // Guarded by the mutex:
  std::vector<Piece> pieces_{};
  std::size_t bytes_ = 0;
  bool begun_ = false;
  bool writes_ = false;
};

struct Screen {
  explicit Screen(int descriptor, const std::string& name)
      : to(std::make_shared<Destination>(Destination{descriptor, name, {}})) {}
  void add(std::string_view text) { writer.add(to, text); }

  const std::shared_ptr<Destination> to;
  Writer writer{};
};

/// Writers are never destroyed, because their threads do not end.
Screen& screen_of(int to) {
  static auto& out = *new Screen(STDOUT_FILENO, "standard output");
  static auto& error = *new Screen(STDERR_FILENO, "standard error");
  return to == STDERR_FILENO ? error : out;
}

Writer& writer_of_files() {
  static auto& files = *new Writer();
  return files;
}

/// Reports only the first loss: the other stream, which gets the message, may be lost too.
void report_loss(const Destination& lost, int error) {
  if (lost_output.exchange(true)) return;
  screen_of(lost.descriptor == STDERR_FILENO ? STDOUT_FILENO : STDERR_FILENO)
      .add(fmt::format("kolorun: {} cannot be written, and is lost: {}\n", lost.name,
                       kolo::internal::error_text(error)));
}

}  // namespace

bool has_lost_output() { return lost_output; }

void write_all(int to, std::string_view text) { screen_of(to).add(text); }

bool is_full(int to) { return screen_of(to).writer.size() > max_unwritten; }

void flush_output() {
  // Standard output comes twice, because a loss on standard error is reported there.
  writer_of_files().flush();
  for (const int to : {STDOUT_FILENO, STDERR_FILENO, STDOUT_FILENO}) screen_of(to).writer.flush();
}

OutputFile::OutputFile(node::FileDescriptor file, const std::string& path)
    : file_(std::make_shared<Destination>(
          Destination{file.get(), '\'' + path + '\'', std::move(file)})) {}

void OutputFile::add(std::string_view text) const { writer_of_files().add(file_, text); }

bool OutputFile::is_full() { return writer_of_files().size() > max_unwritten; }

}  // namespace kolorun
