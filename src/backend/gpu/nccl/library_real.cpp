// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <bit>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::nccl {
namespace {

static_assert(static_cast<int>(RedOp::sum) == ncclSum);
static_assert(static_cast<int>(RedOp::product) == ncclProd);
static_assert(static_cast<int>(RedOp::max) == ncclMax);
static_assert(static_cast<int>(RedOp::min) == ncclMin);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

/// Loads NCCL at its first use, so that the program starts without it. If another library has
/// already loaded NCCL, that one is used.
void* load_nccl() {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen(KOLO_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw BackendError(fmt::format("NCCL is not found: {}", ::dlerror()));
  return library;
}

/// NCCL's ABI is stable since 2.18: newer headers only append to structures, and NCCL reads only as
/// much of a configuration as it knows (parseCommConfig: `realSize`).
constexpr int oldest_version = 21800;
constexpr int shared_gpus_since = 23000;
constexpr int windows_since = 22800;

/// A function of NCCL, looked up by its name.
template <typename Signature>
struct Function {
  Function(void* library, const char* symbol)
      : name(symbol), pointer(reinterpret_cast<Signature*>(::dlsym(library, symbol))) {
    if (pointer == nullptr) throw BackendError(fmt::format("NCCL has no {}", name));
  }

  const char* name;
  Signature* pointer;
};

/// A function that older versions lack. Its type is declared here, since their headers lack it too.
template <typename Signature>
struct NewerFunction {
  NewerFunction(void* library, const char* symbol)
      : name(symbol), pointer(reinterpret_cast<Signature*>(::dlsym(library, symbol))) {}
  explicit operator bool() const { return pointer != nullptr; }

  const char* name;
  Signature* pointer;
};

using Allocate = ncclResult_t(void** memory, std::size_t bytes);
using Release = ncclResult_t(void* memory);
using RegisterBuffer = ncclResult_t(ncclComm_t comm, void* memory, std::size_t bytes,
                                    void** registration);
using DeregisterBuffer = ncclResult_t(ncclComm_t comm, void* registration);
using RegisterWindow = ncclResult_t(ncclComm_t comm, void* memory, std::size_t bytes, void** window,
                                    int flags);
using DeregisterWindow = ncclResult_t(ncclComm_t comm, void* window);
constexpr int symmetric_window = 1;  // NCCL_WIN_COLL_SYMMETRIC
using Shrink = ncclResult_t(ncclComm_t comm, int* excluded, int count, ncclComm_t* made,
                            ncclConfig_t* config, int flags);
constexpr int shrink_default = 0;  // NCCL_SHRINK_DEFAULT

struct Functions {
  void* library = load_nccl();  // never closed: NCCL's threads may outlive this object
  Function<decltype(ncclGetVersion)> get_version{library, "ncclGetVersion"};
  Function<decltype(ncclGetErrorString)> get_error_string{library, "ncclGetErrorString"};
  Function<decltype(ncclGetLastError)> get_last_error{library, "ncclGetLastError"};
  Function<decltype(ncclGetUniqueId)> get_unique_id{library, "ncclGetUniqueId"};
  Function<decltype(ncclCommInitRankConfig)> init{library, "ncclCommInitRankConfig"};
  NewerFunction<Shrink> shrink{library, "ncclCommShrink"};  // 2.27
  Function<decltype(ncclCommSplit)> split{library, "ncclCommSplit"};
  Function<decltype(ncclCommGetAsyncError)> get_async_error{library, "ncclCommGetAsyncError"};
  Function<decltype(ncclCommDestroy)> destroy{library, "ncclCommDestroy"};
  Function<decltype(ncclCommAbort)> abort{library, "ncclCommAbort"};
  NewerFunction<Allocate> allocate{library, "ncclMemAlloc"};                         // 2.19
  NewerFunction<Release> release{library, "ncclMemFree"};                            // 2.19
  NewerFunction<RegisterBuffer> register_buffer{library, "ncclCommRegister"};        // 2.19
  NewerFunction<DeregisterBuffer> deregister_buffer{library, "ncclCommDeregister"};  // 2.19
  NewerFunction<RegisterWindow> register_window{library, "ncclCommWindowRegister"};
  NewerFunction<DeregisterWindow> deregister_window{library, "ncclCommWindowDeregister"};
  Function<decltype(ncclGroupStart)> group_start{library, "ncclGroupStart"};
  Function<decltype(ncclGroupEnd)> group_end{library, "ncclGroupEnd"};
  Function<decltype(ncclAllReduce)> all_reduce{library, "ncclAllReduce"};
  Function<decltype(ncclReduceScatter)> reduce_scatter{library, "ncclReduceScatter"};
  Function<decltype(ncclAllGather)> all_gather{library, "ncclAllGather"};
  Function<decltype(ncclBroadcast)> broadcast{library, "ncclBroadcast"};
  Function<decltype(ncclSend)> send{library, "ncclSend"};
  Function<decltype(ncclRecv)> receive{library, "ncclRecv"};
};

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return ncclUint8;
    case DType::i8: return ncclInt8;
    case DType::u32: return ncclUint32;
    case DType::i32: return ncclInt32;
    case DType::u64: return ncclUint64;
    case DType::i64: return ncclInt64;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::u16:
    case DType::i16: break;
  }
  throw BackendError(fmt::format("NCCL cannot reduce {}", to_string(dtype)));
}

class RealLibrary : public Library {
 public:
  RealLibrary() {
    const int found = version();
    if (found / 10000 != oldest_version / 10000 || found < oldest_version)
      throw BackendError(
          fmt::format("NCCL {}.{}.{} is not supported: Kolo needs NCCL 2.18 or a later 2.x",
                      found / 10000, found % 10000 / 100, found % 100));
  }

  int version() override {
    int version = 0;
    call(nccl_.get_version, &version);
    return version;
  }

  bool can_derive() override { return static_cast<bool>(nccl_.shrink); }

  /// Reads the setting as NCCL does (init.cc: `MultiRankGpuEnable`), except that NCCL also reads it
  /// from its file nccl.conf.
  bool allows_shared_gpus() override {
    const char* const setting = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return setting != nullptr && std::string_view(setting) == "1" && version() >= shared_gpus_since;
  }

  UniqueId make_unique_id() override {
    ncclUniqueId id;
    call(nccl_.get_unique_id, &id);
    return std::bit_cast<UniqueId>(id);
  }

  State init(CommHandle& comm, int size, const UniqueId& id, int rank) override {
    ncclConfig_t config = make_config(/*blocking=*/false);
    return call(nccl_.init, &comm, size, std::bit_cast<ncclUniqueId>(id), rank, &config);
  }

  void shrink(CommHandle& comm, CommHandle parent, std::span<const int> excluded) override {
    ncclConfig_t config = make_config(/*blocking=*/false);
    std::vector<int> list(excluded.begin(), excluded.end());
    call(nccl_.shrink, parent, list.data(), list.size(), &comm, &config, shrink_default);
  }

  /// The child of a parent whose calls do not block is made as the parent's other children are,
  /// whatever its own configuration says.
  void split(CommHandle& comm, CommHandle parent) override {
    ncclConfig_t config = make_config(/*blocking=*/true);
    constexpr int same = 0;  // all ranks get the same child, in the parent's order
    call(nccl_.split, parent, same, same, &comm, &config);
  }

  State state(CommHandle comm) override {
    ncclResult_t state = ncclSuccess;
    call(nccl_.get_async_error, comm, &state);
    return check(state, "a call of NCCL under way");
  }

  void destroy(CommHandle comm) noexcept override {
    static_cast<void>(nccl_.destroy.pointer(comm));
  }
  bool abort(std::span<const CommHandle* const> comms,
             const std::function<bool()>& calls_end) noexcept override {
    if (!nccl_.shrink) {
      // Here calls do not wait for other ranks, but may wait for the GPU, which only the aborts
      // end.
      static_cast<void>(calls_end());
      abort_at_once(comms);
      return true;
    }
    // Within a group, ncclCommAbort only tells kernels and calls to end, and ncclGroupEnd waits for
    // the kernels and frees what a call would still use. It blocks although some of the
    // communicators are non-blocking (ncclAsyncLaunch: `comm->destroyFlag`).
    static_cast<void>(nccl_.group_start.pointer());
    for (const CommHandle* comm : comms)
      if (*comm != nullptr) static_cast<void>(nccl_.abort.pointer(*comm));
    if (!calls_end()) return false;  // the group stays open: closing it would free
    static_cast<void>(nccl_.group_end.pointer());
    return true;
  }

  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (nccl_.allocate) {
      call(nccl_.allocate, &memory, bytes);
    } else if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw BackendError(fmt::format("cudaMalloc failed: {}", cudaGetErrorString(error)));
    }
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) noexcept override {
    if (nccl_.allocate) {
      static_cast<void>(nccl_.release.pointer(memory));
    } else {
      static_cast<void>(cudaFree(memory));
    }
  }

  Registration register_buffer(CommHandle comm, std::byte* memory, std::size_t bytes) override {
    Registration made;
    if (nccl_.register_window && version() >= windows_since) {
      // NCCL succeeds without a window where the GPUs have none (ncclCommWindowRegister).
      call(nccl_.register_window, comm, memory, bytes, &made.handle, symmetric_window);
      made.is_window = made.handle != nullptr;
    }
    if (!made.is_window && nccl_.register_buffer)
      call(nccl_.register_buffer, comm, memory, bytes, &made.handle);
    return made;
  }
  void deregister_buffer(CommHandle comm, const Registration& registration) noexcept override {
    auto* const deregister =
        registration.is_window ? nccl_.deregister_window.pointer : nccl_.deregister_buffer.pointer;
    if (registration.handle != nullptr) static_cast<void>(deregister(comm, registration.handle));
  }

  void group_start() override { call(nccl_.group_start); }
  State group_end(CommHandle /*comm*/) override { return call(nccl_.group_end); }

  void all_reduce(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                  CommHandle comm, StreamHandle stream) override {
    call(nccl_.all_reduce, from, to, count, type_of(dtype), op, comm, stream);
  }

  void reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                      CommHandle comm, StreamHandle stream) override {
    call(nccl_.reduce_scatter, from, to, count, type_of(dtype), op, comm, stream);
  }

  void all_gather(const void* from, void* to, std::int64_t bytes, CommHandle comm,
                  StreamHandle stream) override {
    call(nccl_.all_gather, from, to, bytes, ncclUint8, comm, stream);
  }

  void broadcast(const void* from, void* to, std::int64_t bytes, int root, CommHandle comm,
                 StreamHandle stream) override {
    call(nccl_.broadcast, from, to, bytes, ncclUint8, root, comm, stream);
  }

  void send(const void* from, std::int64_t bytes, int peer, CommHandle comm,
            StreamHandle stream) override {
    call(nccl_.send, from, bytes, ncclUint8, peer, comm, stream);
  }

  void receive(void* to, std::int64_t bytes, int peer, CommHandle comm,
               StreamHandle stream) override {
    call(nccl_.receive, to, bytes, ncclUint8, peer, comm, stream);
  }

 private:
  static ncclConfig_t make_config(bool blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    return config;
  }

  /// Older versions do not defer aborts to the end of a group: each abort waits for its kernels,
  /// which may wait on the stream for kernels of another communicator. So all aborts run at the
  /// same time.
  void abort_at_once(std::span<const CommHandle* const> comms) const noexcept {
    std::vector<std::thread> threads;
    for (const CommHandle* comm : comms) {
      if (*comm == nullptr) continue;
      try {
        threads.emplace_back([this, comm] { static_cast<void>(nccl_.abort.pointer(*comm)); });
      } catch (...) {  // no thread, or no memory
        static_cast<void>(nccl_.abort.pointer(*comm));
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// The casts convert counts, which NCCL declares unsigned, and RedOp.
  template <template <typename> typename Called, typename... Parameters, typename... Arguments>
  State call(const Called<ncclResult_t(Parameters...)>& function, Arguments... arguments) const {
    return check(function.pointer(static_cast<Parameters>(arguments)...), function.name);
  }

  State check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess) return State::ready;
    if (result == ncclInProgress) return State::in_progress;
    const char* const detail = nccl_.get_last_error.pointer(nullptr);  // NCCL ignores the argument
    std::string message =
        fmt::format("{} failed: {} ({})", call, nccl_.get_error_string.pointer(result),
                    static_cast<int>(result));
    if (detail != nullptr && *detail != '\0') message += fmt::format(": {}", detail);
    throw BackendError(message);
  }

  Functions nccl_{};
};

}  // namespace

std::string built_version() { return fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH); }

std::shared_ptr<Library> find_library() { return std::make_shared<RealLibrary>(); }

}  // namespace kolo::internal::backend::nccl
