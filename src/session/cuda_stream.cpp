// The public face of streams: kolo/cuda.hpp.
#include "kolo/cuda.hpp"

#include <utility>

namespace kolo {
namespace {

thread_local CUstream_st* current_stream = nullptr;

}  // namespace

CudaStreamScope::CudaStreamScope(CUstream_st* stream) noexcept
    : before_(std::exchange(current_stream, stream)) {}

CudaStreamScope::~CudaStreamScope() { current_stream = before_; }

CUstream_st* CudaStreamScope::current() noexcept { return current_stream; }

}  // namespace kolo
