// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"

#include <fstream>
#include <stdexcept>

namespace gan {

void write_picture(const std::filesystem::path& file, const torch::Tensor& images,
                   std::int64_t columns) {
  const std::int64_t height = images.size(2);
  const std::int64_t width = images.size(3);
  // [rows, columns, 3, height, width] to [rows * height, columns * width, 3].
  const torch::Tensor pixels = ((images + 1.0) * 127.5)
                                   .clamp(0.0, 255.0)
                                   .to(torch::kUInt8)
                                   .reshape({-1, columns, 3, height, width})
                                   .permute({0, 3, 1, 4, 2})
                                   .contiguous();
  std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, std::ios::binary);
  stream << "P6\n" << columns * width << ' ' << pixels.size(0) * height << "\n255\n";
  stream.write(static_cast<const char*>(pixels.data_ptr()), pixels.numel());
  stream.close();
  if (!stream) throw std::runtime_error("cannot write '" + file.string() + "'");
}

}  // namespace gan
