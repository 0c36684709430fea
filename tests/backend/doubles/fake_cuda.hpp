// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime within one process, in its memory and without a GPU. Work given to streams runs
// later, one item at a time, in a random order that streams and events allow, independent of the
// calls. The double is as strict as CUDA: handles of streams are reused, threads have devices and
// default streams of their own, memory is finite, cudaFree waits for the GPU, some calls invalidate
// captures, and after a fault every call fails. It is as unkind as a GPU whose host runs ahead:
// work finishes late, a wait for a stream or event waits for nothing else, and memory that the
// program frees is overwritten and used again as early as the order of its stream allows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/gpu/runtime/runtime.hpp"
#include "fake_graph.hpp"

namespace kolo::internal::backend {

/// Makes planned calls fail; shared by the doubles of a rank.
class Faults {
 public:
  /// Makes the call of this name fail after `after` successful calls.
  void plan(const std::string& call, int after = 0) { planned_[call] = after; }
  /// Throws BackendError if this call is planned to fail.
  void pass(const std::string& call);
  [[nodiscard]] const std::map<std::string, int>& counts() const { return counts_; }
  /// The number of such calls, of all threads.
  [[nodiscard]] int made(const std::string& call);
  /// The number of such calls that the calling thread has made.
  [[nodiscard]] int made_by_this_thread(const std::string& call);

 private:
  std::mutex mutex_{};
  std::map<std::string, int> planned_{};
  std::map<std::string, int> counts_{};
  std::map<std::thread::id, std::map<std::string, int>> counts_by_thread_{};
};

/// Does the kernel's work, one element after the other.
void transfer_on_host(const gpu::Segment& segment);

class FakeCuda : public gpu::Runtime {
 public:
  /// Returns false while the work cannot be done yet; then it is called again.
  using Work = std::function<bool()>;

  /// Whether a thread of the double does the work, each item up to a millisecond late, or only
  /// `advance`.
  enum class Clock : std::uint8_t { by_hand, by_itself };

  /// A process with the GPUs of these numbers, which other processes have only if they share them.
  FakeCuda(std::vector<int> gpus, std::uint64_t seed, Clock clock = Clock::by_hand);
  ~FakeCuda() override;
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  /// Tries the next work of a random stream. Returns true if it was done.
  bool advance();
  /// Errors of the caller, and resources that were not released.
  [[nodiscard]] std::vector<std::string> complaints() const;
  void complain(const std::string& text);

  /// An error of a kernel, which the process keeps: the GPU does no further work, and every
  /// later call fails.
  void break_down(const std::string& error);
  [[nodiscard]] bool is_broken() const;
  /// The same, with a complaint.
  void fault(const std::string& text);

  /// Locked while work is done.
  [[nodiscard]] std::recursive_mutex& mutex() const { return mutex_; }
  void enqueue(gpu::StreamHandle stream, Work work);
  /// Allocates memory without planned faults or delay, for the tests themselves.
  [[nodiscard]] std::byte* make_memory(std::size_t bytes);
  /// The same for memory that another stream than that of `free_memory` uses first.
  [[nodiscard]] std::byte* make_fresh_memory(std::size_t bytes);
  [[nodiscard]] bool is_memory(const void* begin, std::size_t bytes) const;
  /// Frees memory as LibTorch's allocator does: the next `make_memory` of the same size may return
  /// it at once, for work on `stream`. The old contents are overwritten in the order of `stream`.
  void free_memory(std::byte* memory, gpu::StreamHandle stream = nullptr);
  /// Frees memory immediately: later accesses are errors.
  void unmap_memory(std::byte* memory) { give_back(memory, false); }

  /// Begins to capture the stream into a graph. Complains about calls that invalidate the capture,
  /// whatever its mode is.
  void begin_capture(gpu::StreamHandle stream,
                     gpu::CaptureMode mode = gpu::CaptureMode::thread_local_only);
  /// True if a capture forbids calls of threads that no one has put into the relaxed mode.
  [[nodiscard]] bool captures_globally() const;
  /// Ends the capture of the stream and of those that joined it. Complains about work for which the
  /// stream does not wait.
  std::shared_ptr<const FakeGraph> end_capture(gpu::StreamHandle stream);
  /// Gives one replay to the stream.
  void launch_graph(const FakeGraph& graph, gpu::StreamHandle stream);
  /// The double of cudaStreamPerThread.
  [[nodiscard]] static gpu::StreamHandle per_thread_stream();

  Faults faults{};
  gpu::Versions reported{13000, 13000};
  /// The maximum number of copies to the host; later copies wait until the limit is raised.
  int max_copies_to_host = std::numeric_limits<int>::max();
  bool has_kernels = true;
  /// The size of the device's memory.
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();

  gpu::Versions versions() override;
  int device_count() override;
  gpu::DeviceProperties properties(int device) override;
  void check_kernels() override;
  int current_device() override;
  void use_device(int device) override;
  bool is_in_use(int device) override;
  gpu::StreamHandle create_stream() override;
  void destroy_stream(gpu::StreamHandle stream) noexcept override;
  void synchronize(gpu::StreamHandle stream) override;
  std::uint64_t stream_id(gpu::StreamHandle stream) override;
  bool is_capturing(gpu::StreamHandle stream) override;
  gpu::CaptureMode exchange_capture_mode(gpu::CaptureMode mode) noexcept override;
  gpu::EventHandle create_event() override;
  void destroy_event(gpu::EventHandle event) noexcept override;
  void record(gpu::EventHandle event, gpu::StreamHandle stream) override;
  void wait(gpu::StreamHandle stream, gpu::EventHandle event) override;
  bool is_done(gpu::EventHandle event) override;
  void synchronize(gpu::EventHandle event) override;
  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) noexcept override;
  std::byte* allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* memory) noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, gpu::CopyKind kind,
            gpu::StreamHandle stream) override;
  void launch(std::span<const gpu::Segment> segments, gpu::StreamHandle stream) override;

  [[nodiscard]] int launches() const {
    const std::lock_guard lock(mutex_);
    return launches_;
  }
  [[nodiscard]] int copies_to_device() const { return copies_to_device_; }
  /// The peak of allocated device memory.
  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  using Number = std::uintptr_t;  // the handle of an event, or the id of a stream
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  struct Memory {
    std::unique_ptr<std::byte[], Free> bytes;
    std::size_t size;
    bool pinned;
  };
  struct Event {
    int device;
    /// Whether its last record was reached; null if there is none. Earlier records, which streams
    /// may wait for, have theirs.
    std::shared_ptr<bool> reached{};
    std::shared_ptr<FakeGraph> graph{};  // in whose capture it was recorded last
    FakeGraph::Clock after{};            // its place in that graph
  };
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Item {
    Work work;
    TimePoint begins{};  // at the earliest
  };
  struct Stream {
    int device;
    std::deque<Item> work{};
    std::shared_ptr<FakeGraph> graph{};  // null unless the stream is being captured
    bool destroyed = false;              // work that is queued is still done
  };

  /// Throws if the call is planned to fail, or after a fault.
  void pass(const char* call);
  void run();
  [[nodiscard]] std::byte* take(std::size_t bytes, bool pinned);
  void give_back(std::byte* memory, bool pinned);
  [[nodiscard]] bool is_busy() const;
  /// Lets the GPU work until `is_over` is true. Without the lock.
  void wait_until(const char* call, const std::function<bool()>& is_over);
  /// Waits until the GPU is idle, as cudaFree does.
  void wait_until_idle(const char* call);
  /// Checks a call that invalidates captures unless the thread's mode is relaxed.
  void pass_captures(const char* call);
  [[nodiscard]] bool captures() const;
  [[nodiscard]] Number id_of(gpu::StreamHandle handle);
  [[nodiscard]] Stream* find_stream(gpu::StreamHandle handle, const char* call);
  [[nodiscard]] Event* find_event(gpu::EventHandle handle, const char* call);
  /// Complains about an event that was recorded in a capture, and throws.
  void require_uncaptured(const Event& event, const char* call);
  void check_memory(const void* begin, std::size_t bytes, const char* what);
  /// Launches as many of the segments as fit into a table, and returns their number.
  std::size_t launch_table(std::span<const gpu::Segment> segments, gpu::StreamHandle stream);

  mutable std::recursive_mutex mutex_{};
  std::vector<int> gpus_;
  std::mt19937_64 random_;
  std::vector<std::string> complaints_{};
  std::map<std::thread::id, int> current_{};
  std::set<int> used_{};
  std::map<std::thread::id, gpu::CaptureMode> modes_{};
  std::map<Number, Stream> streams_{};               // by id
  std::map<gpu::StreamHandle, Number> ids_{};        // stream ids by handle
  std::map<std::thread::id, Number> per_thread_{};   // ids behind cudaStreamPerThread
  std::vector<gpu::StreamHandle> unused_handles_{};  // handles of destroyed streams, for reuse
  std::map<Number, Event> events_{};
  std::map<const std::byte*, Memory> memory_{};
  std::multimap<std::size_t, std::byte*>
      freed_{};            // blocks that `make_memory` returns again, by size
  std::size_t bytes_ = 0;  // allocated bytes of the device
  std::size_t peak_bytes_ = 0;
  std::string broken_{};  // error of the process, which it keeps
  Number next_ = 16;
  int launches_ = 0;
  int copies_to_host_ = 0;
  int copies_to_device_ = 0;
  bool stopping_ = false;
  std::condition_variable_any changed_{};
  std::thread thread_{};
};

}  // namespace kolo::internal::backend
