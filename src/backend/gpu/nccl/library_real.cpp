#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "base/elements.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::nccl {
namespace {

static_assert(static_cast<int>(RedOp::sum) == ncclSum);
static_assert(static_cast<int>(RedOp::product) == ncclProd);
static_assert(static_cast<int>(RedOp::max) == ncclMax);
static_assert(static_cast<int>(RedOp::min) == ncclMin);
static_assert(static_cast<int>(RedOp::average) == ncclAvg);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

/// Loaded when it is first wanted: the program starts without it, and what another library has
/// loaded is the same one.
class Loaded {
 public:
  /// Else the one that this was built with.
  Loaded() : handle_(::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) handle_ = ::dlopen(KOLO_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw BackendError(fmt::format("NCCL is not found: {}", ::dlerror()));
  }

  template <typename Function>
  Function* find(const char* name) const {
    void* const function = ::dlsym(handle_, name);
    if (function == nullptr) throw BackendError(fmt::format("NCCL has no {}", name));
    return reinterpret_cast<Function*>(function);
  }

 private:
  void* handle_;  // for good: its threads may outlive us
};

struct Functions {
  Loaded loaded{};
  decltype(&ncclGetVersion) get_version = loaded.find<decltype(ncclGetVersion)>("ncclGetVersion");
  decltype(&ncclGetErrorString) get_error_string =
      loaded.find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(&ncclGetLastError) get_last_error =
      loaded.find<decltype(ncclGetLastError)>("ncclGetLastError");
  decltype(&ncclGetUniqueId) get_unique_id =
      loaded.find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init =
      loaded.find<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(&ncclCommShrink) shrink = loaded.find<decltype(ncclCommShrink)>("ncclCommShrink");
  decltype(&ncclCommGetAsyncError) get_async_error =
      loaded.find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(&ncclCommDestroy) destroy = loaded.find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = loaded.find<decltype(ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclMemAlloc) allocate = loaded.find<decltype(ncclMemAlloc)>("ncclMemAlloc");
  decltype(&ncclMemFree) release = loaded.find<decltype(ncclMemFree)>("ncclMemFree");
  decltype(&ncclCommRegister) register_buffer =
      loaded.find<decltype(ncclCommRegister)>("ncclCommRegister");
  decltype(&ncclCommDeregister) deregister_buffer =
      loaded.find<decltype(ncclCommDeregister)>("ncclCommDeregister");
  decltype(&ncclRedOpCreatePreMulSum) make_op =
      loaded.find<decltype(ncclRedOpCreatePreMulSum)>("ncclRedOpCreatePreMulSum");
  decltype(&ncclRedOpDestroy) destroy_op =
      loaded.find<decltype(ncclRedOpDestroy)>("ncclRedOpDestroy");
  decltype(&ncclGroupStart) group_start = loaded.find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = loaded.find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  decltype(&ncclAllReduce) all_reduce = loaded.find<decltype(ncclAllReduce)>("ncclAllReduce");
  decltype(&ncclReduceScatter) reduce_scatter =
      loaded.find<decltype(ncclReduceScatter)>("ncclReduceScatter");
  decltype(&ncclAllGather) all_gather = loaded.find<decltype(ncclAllGather)>("ncclAllGather");
  decltype(&ncclBroadcast) broadcast = loaded.find<decltype(ncclBroadcast)>("ncclBroadcast");
  decltype(&ncclSend) send = loaded.find<decltype(ncclSend)>("ncclSend");
  decltype(&ncclRecv) receive = loaded.find<decltype(ncclRecv)>("ncclRecv");
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

ncclRedOp_t op_of(RedOp op) { return static_cast<ncclRedOp_t>(op); }

class RealLibrary : public Library {
 public:
  RealLibrary() {
    const int found = version();
    if (found / 10000 != NCCL_MAJOR || found < NCCL_VERSION_CODE)
      throw BackendError(fmt::format(
          "NCCL {}.{}.{} is older than the {}.{}.{} that this build of Kolo needs", found / 10000,
          found % 10000 / 100, found % 100, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
  }

  int version() override {
    int version = 0;
    check(nccl_.get_version(&version), "ncclGetVersion");
    return version;
  }

  UniqueId make_unique_id() override {
    ncclUniqueId id;
    check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    UniqueId copy;
    std::copy_n(static_cast<const char*>(id.internal), copy.size(), copy.begin());
    return copy;
  }

  State init(CommHandle& comm, int size, const UniqueId& id, int rank) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId copy;
    std::copy_n(id.begin(), id.size(), static_cast<char*>(copy.internal));
    return check(nccl_.init(&comm, size, copy, rank, &config), "ncclCommInitRankConfig", comm);
  }

  State shrink(CommHandle& comm, CommHandle parent, std::span<const int> excluded) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    std::vector<int> list(excluded.begin(), excluded.end());
    return check(nccl_.shrink(parent, list.data(), static_cast<int>(list.size()), &comm, &config,
                              NCCL_SHRINK_DEFAULT),
                 "ncclCommShrink", parent);
  }

  State state(CommHandle comm) override {
    ncclResult_t state = ncclSuccess;
    check(nccl_.get_async_error(comm, &state), "ncclCommGetAsyncError", comm);
    return check(state, "a call of NCCL under way", comm);
  }

  void destroy(CommHandle comm) noexcept override { static_cast<void>(nccl_.destroy(comm)); }
  void abort(CommHandle comm) noexcept override { static_cast<void>(nccl_.abort(comm)); }

  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(nccl_.allocate(&memory, bytes), "ncclMemAlloc");
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) noexcept override { static_cast<void>(nccl_.release(memory)); }

  void* register_buffer(CommHandle comm, std::byte* memory, std::size_t bytes) override {
    void* registration = nullptr;
    check(nccl_.register_buffer(comm, memory, bytes, &registration), "ncclCommRegister", comm);
    return registration;
  }
  void deregister_buffer(CommHandle comm, void* registration) noexcept override {
    if (registration != nullptr) static_cast<void>(nccl_.deregister_buffer(comm, registration));
  }

  RedOp make_scaled_sum(CommHandle comm, double factor, DType dtype) override {
    ncclRedOp_t op = ncclSum;
    visit_real(dtype, [&](auto type) {
      auto scalar = rounded<decltype(type)>(factor);
      check(nccl_.make_op(&op, &scalar, type_of(dtype), ncclScalarHostImmediate, comm),
            "ncclRedOpCreatePreMulSum", comm);
    });
    return static_cast<RedOp>(op);
  }
  void destroy_op(CommHandle comm, RedOp op) noexcept override {
    static_cast<void>(nccl_.destroy_op(op_of(op), comm));
  }

  void group_start() override { check(nccl_.group_start(), "ncclGroupStart"); }
  State group_end(CommHandle comm) override {
    return check(nccl_.group_end(), "ncclGroupEnd", comm);
  }

  void all_reduce(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                  CommHandle comm, StreamHandle stream) override {
    check(nccl_.all_reduce(from, to, static_cast<std::size_t>(count), type_of(dtype), op_of(op),
                           comm, stream),
          "ncclAllReduce", comm);
  }

  void reduce_scatter(const void* from, void* to, std::int64_t count, DType dtype, RedOp op,
                      CommHandle comm, StreamHandle stream) override {
    check(nccl_.reduce_scatter(from, to, static_cast<std::size_t>(count), type_of(dtype), op_of(op),
                               comm, stream),
          "ncclReduceScatter", comm);
  }

  void all_gather(const void* from, void* to, std::int64_t bytes, CommHandle comm,
                  StreamHandle stream) override {
    check(nccl_.all_gather(from, to, static_cast<std::size_t>(bytes), ncclUint8, comm, stream),
          "ncclAllGather", comm);
  }

  void broadcast(const void* from, void* to, std::int64_t bytes, int root, CommHandle comm,
                 StreamHandle stream) override {
    check(nccl_.broadcast(from, to, static_cast<std::size_t>(bytes), ncclUint8, root, comm, stream),
          "ncclBroadcast", comm);
  }

  void send(const void* from, std::int64_t bytes, int peer, CommHandle comm,
            StreamHandle stream) override {
    check(nccl_.send(from, static_cast<std::size_t>(bytes), ncclUint8, peer, comm, stream),
          "ncclSend", comm);
  }

  void receive(void* to, std::int64_t bytes, int peer, CommHandle comm,
               StreamHandle stream) override {
    check(nccl_.receive(to, static_cast<std::size_t>(bytes), ncclUint8, peer, comm, stream),
          "ncclRecv", comm);
  }

 private:
  State check(ncclResult_t result, const char* call, CommHandle comm = nullptr) const {
    if (result == ncclSuccess) return State::ready;
    if (result == ncclInProgress) return State::in_progress;
    const char* const detail = nccl_.get_last_error(comm);
    std::string message = fmt::format("{} failed: {} ({})", call, nccl_.get_error_string(result),
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
