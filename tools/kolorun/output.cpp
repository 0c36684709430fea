// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/process_limits.hpp"

namespace kolorun {
namespace {

// A longer line is written in parts, each with a tag.
constexpr std::size_t max_line = 65536;
// Lines that other hosts have tagged stay whole up to this length.
constexpr std::size_t max_tagged_line = 1 << 20;
// Limits of `LastLines`, which the message about a failed process shows.
constexpr std::size_t max_last_bytes = 4096;
constexpr int max_last_lines = 20;
constexpr int max_reads = 16;  // per call, so that other streams get their turn

// More unwritten output than this stops reading from ranks, which then wait.
constexpr std::size_t max_unwritten = 1 << 20;

std::atomic<bool> lost_output{false};

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

/// Writes in a thread of its own, because the reader of the output may pause. Thread-safe.
class Writer {
 public:
  explicit Writer(int to) : to_(to) {}

  void add(std::string_view text) {
    const std::lock_guard lock(mutex_);
    text_ += text;
    if (!std::exchange(begun_, true)) std::thread([this] { run(); }).detach();
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t size() {
    const std::lock_guard lock(mutex_);
    return text_.size();
  }
  /// Waits until all text is written, or a signal to end arrives.
  void flush() {
    std::unique_lock lock(mutex_);
    while ((writes_ || !text_.empty()) && !is_to_end())
      changed_.wait_for(lock, std::chrono::milliseconds(100));
  }

 private:
  void report_loss(int error);
  void run() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !text_.empty(); });
      const std::string text = std::exchange(text_, {});
      writes_ = true;
      lock.unlock();
      if (const int error = write_now(to_, text); is_loss(error)) report_loss(error);
      lock.lock();
      writes_ = false;
      changed_.notify_all();
    }
  }

  const int to_;
  std::mutex mutex_{};
  std::condition_variable changed_{};
  // Guarded by the mutex:
  std::string text_{};
  bool begun_ = false;
  bool writes_ = false;
};

/// Writers are never destroyed, because their threads do not end.
Writer& writer_of(int to) {
  static auto& out = *new Writer(STDOUT_FILENO);
  static auto& error = *new Writer(STDERR_FILENO);
  return to == STDERR_FILENO ? error : out;
}

/// Reports only the first loss: the other stream, which gets the message, may be lost too.
void Writer::report_loss(int error) {
  if (lost_output.exchange(true)) return;
  const bool is_error = to_ == STDERR_FILENO;
  writer_of(is_error ? STDOUT_FILENO : STDERR_FILENO)
      .add(fmt::format("kolorun: standard {} cannot be written, and is lost: {}\n",
                       is_error ? "error" : "output", kolo::internal::error_text(error)));
}

}  // namespace

bool has_lost_output() { return lost_output; }

void write_all(int to, std::string_view text) { writer_of(to).add(text); }

bool is_full(int to) { return writer_of(to).size() > max_unwritten; }

void flush_output() {
  // Standard output comes twice, because a loss on standard error is reported there.
  for (const int to : {STDOUT_FILENO, STDERR_FILENO, STDOUT_FILENO}) writer_of(to).flush();
}

void LastLines::add(std::string_view text) {
  text_ += text;
  // Rarely, so that the cost does not depend on the size of the pieces.
  if (text_.size() > 4 * max_last_bytes) text_.erase(0, text_.size() - max_last_bytes);
}

std::string LastLines::text() const {
  std::string_view last(text_);
  if (last.size() > max_last_bytes) last.remove_prefix(last.size() - max_last_bytes);
  while (last.ends_with('\n')) last.remove_suffix(1);
  std::size_t begin = last.size();
  for (int lines = 0; lines < max_last_lines && begin != std::string_view::npos; ++lines)
    begin = begin == 0 ? std::string_view::npos : last.rfind('\n', begin - 1);
  return std::string(begin == std::string_view::npos ? last : last.substr(begin + 1));
}

std::string LastLines::of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  const auto length = std::min<std::streamoff>(size, max_last_bytes);
  std::string end(static_cast<std::size_t>(length), '\0');
  if (!file.seekg(size - length).read(end.data(), length)) return "";
  LastLines lines;
  lines.add(end);
  return lines.text();
}

TaggedStream::TaggedStream(kolo::internal::node::FileDescriptor from, int to, std::string tag,
                           Unit unit, std::shared_ptr<LastLines> last_lines)
    : from_(std::move(from)),
      to_(to),
      tag_(std::move(tag)),
      unit_(unit),
      last_lines_(std::move(last_lines)) {
  ::fcntl(from_.get(), F_SETFL, O_NONBLOCK);
}

bool TaggedStream::copy(bool all) {
  if (is_held() && !all) return true;
  std::array<char, 16384> buffer;
  for (int i = 0; i < max_reads; ++i) {
    const ssize_t bytes = ::read(from_.get(), buffer.data(), buffer.size());
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    const std::string_view text(buffer.data(), static_cast<std::size_t>(bytes));
    if (last_lines_) last_lines_->add(text);
    if (unit_ == Unit::any) {
      write_all(to_, text);
      continue;
    }
    text_ += text;
    write_lines();
  }
  return true;
}

void TaggedStream::write_lines() {
  std::string lines;
  std::size_t begin = 0;
  for (std::size_t end = text_.find('\n'); end != std::string::npos;
       end = text_.find('\n', begin)) {
    lines += tag_;
    lines.append(text_, begin, end + 1 - begin);
    begin = end + 1;
  }
  text_.erase(0, begin);
  const std::size_t most = tag_.empty() ? max_tagged_line : max_line;
  while (text_.size() > most) {
    lines += tag_ + text_.substr(0, most) + '\n';
    text_.erase(0, most);
  }
  write_all(to_, lines);
}

void TaggedStream::finish() {
  if (!text_.empty()) write_all(to_, tag_ + text_ + '\n');
  text_.clear();
}

}  // namespace kolorun
