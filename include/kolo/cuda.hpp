// Tensors on GPUs: what a program tells about its streams. Needs no header of CUDA's.
#pragma once

struct CUstream_st;

namespace kolo {

/// A tensor on a GPU that is given to Kolo may still be in the making there: Kolo waits, on the
/// GPU, for what the calling thread's current stream was given before the call. That is the legacy
/// default stream unless such an object says otherwise: while it lives, it is `stream` (a
/// `cudaStream_t`, which must outlive the call). Scopes on a thread nest.
///
/// Results are there when the operation is done: no stream needs to wait for them.
class [[nodiscard]] CudaStreamScope {
 public:
  explicit CudaStreamScope(CUstream_st* stream) noexcept;
  ~CudaStreamScope();
  CudaStreamScope(const CudaStreamScope&) = delete;
  CudaStreamScope& operator=(const CudaStreamScope&) = delete;

  /// This thread's current stream.
  [[nodiscard]] static CUstream_st* current() noexcept;

 private:
  CUstream_st* before_;
};

}  // namespace kolo
