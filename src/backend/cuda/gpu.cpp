#include "backend/cuda/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::backend::cuda {
namespace {

std::string to_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void check_versions(const Versions& versions) {
  if (versions.driver == 0)
    throw InvalidArgument("this machine has no CUDA driver, and so no GPU that can be used");
  // Within a major version an older driver runs programs of a newer runtime.
  if (versions.driver / 1000 < versions.runtime / 1000)
    throw InvalidArgument(
        fmt::format("the CUDA driver is for CUDA {}, which is older than the CUDA {} that this "
                    "build of Kolo uses: update the driver, or build with an older CUDA",
                    to_text(versions.driver), to_text(versions.runtime)));
}

}  // namespace

std::shared_ptr<const ReadyMark> Gpu::mark(Device device, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  if (index_ < 0) {
    open(device.index);
  } else if (index_ != device.index) {
    throw InvalidArgument(
        fmt::format("the tensor is on {}, but this rank's tensors were on {} before: a rank uses "
                    "one GPU; start a rank for each",
                    to_string(device), to_string(Device{DeviceType::cuda, index_})));
  }
  const DeviceGuard guard(*runtime_, index_);
  Event event = make_event(runtime_);
  runtime_->record(event.get(), stream);
  return std::make_shared<const ReadyMark>(std::move(event), stream, ++marks_);
}

void Gpu::open(int index) {
  const Versions versions = runtime_->versions();
  check_versions(versions);
  const int count = runtime_->device_count();
  if (index < 0 || index >= count)
    throw InvalidArgument(fmt::format(
        "there is no cuda:{} in this process, which sees {} GPU{} (CUDA_VISIBLE_DEVICES decides "
        "which)",
        index, count, count == 1 ? "" : "s"));
  const DeviceGuard guard(*runtime_, index);
  try {
    runtime_->check_kernels();
  } catch (const BackendError& error) {
    throw InvalidArgument(
        fmt::format("this build of Kolo has no code for cuda:{} ({}): build with its architecture "
                    "in CMAKE_CUDA_ARCHITECTURES ({})",
                    index, runtime_->properties(index).name, error.what()));
  }
  DeviceProperties properties = runtime_->properties(index);
  Stream stream = make_stream(runtime_);
  Stream return_stream = make_stream(runtime_);
  versions_ = versions;
  properties_ = std::move(properties);
  stream_ = std::move(stream);
  return_stream_ = std::move(return_stream);
  index_ = index;
}

void Gpu::await(std::span<const Member* const> members, StreamHandle stream) {
  std::map<StreamHandle, const ReadyMark*> last;
  for (const Member* member : members) {
    if (member->ready == nullptr) continue;
    const ReadyMark*& mark = last[member->ready->stream()];
    if (mark == nullptr || mark->number() < member->ready->number()) mark = member->ready.get();
  }
  for (const auto& [from, mark] : last) runtime_->wait(stream, mark->event());
}

}  // namespace kolo::backend::cuda
