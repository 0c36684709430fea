// SPDX-License-Identifier: Apache-2.0
// Answers LibTorch's queries about GPUs: four GPUs with one stream each.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace kolo::internal {

class FakeGpuGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  explicit FakeGpuGuard(c10::DeviceType /*type*/) {}
  FakeGpuGuard() = default;

  [[nodiscard]] c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  [[nodiscard]] c10::Device getDevice() const override { return {type(), current_}; }
  void setDevice(c10::Device device) const override { current_ = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_ = device.index(); }
  [[nodiscard]] c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, stream.device());
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 4; }

 private:
  inline static thread_local c10::DeviceIndex current_ = 0;
};

}  // namespace kolo::internal
