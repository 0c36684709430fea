// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "box.hpp"
#include "drawing.hpp"
#include "image_file.hpp"

namespace retinanet {
namespace {

namespace fs = std::filesystem;
using examples::Image;
using nlohmann::json;
using Random = std::mt19937_64;

constexpr std::size_t image_width = 128, image_height = 96;
// Ids have gaps, as in COCO.
constexpr int rectangle = 3, disc = 7;

// A random integer from `from` to `to`, both included.
int draw(Random& random, int from, int to) {
  return from + static_cast<int>(random() % static_cast<std::uint64_t>(to - from + 1));
}

struct Shape {
  int category;
  Box box;
  Color color;

  [[nodiscard]] double area() const {
    return category == disc ? box.area() * std::numbers::pi / 4 : box.area();
  }

  [[nodiscard]] bool covers(double x, double y) const {
    if (category == rectangle) {
      return x >= box.left && x < box.right && y >= box.top && y < box.bottom;
    }
    const double across = (2 * x - box.left - box.right) / box.width();
    const double down = (2 * y - box.top - box.bottom) / box.height();
    return std::hypot(across, down) <= 1.0;
  }
};

Shape draw_shape(Random& random) {
  const int category = random() % 2 == 0 ? rectangle : disc;
  const int across = draw(random, 20, 56);
  const int down = category == disc ? across : draw(random, 20, 56);
  const int left = draw(random, 0, static_cast<int>(image_width) - across);
  const int top = draw(random, 0, static_cast<int>(image_height) - down);
  Color color{};
  for (std::uint8_t& part : color) part = static_cast<std::uint8_t>(draw(random, 60, 230));
  color[random() % 3] = 255;
  return {.category = category,
          .box = {static_cast<double>(left), static_cast<double>(top),
                  static_cast<double>(left + across), static_cast<double>(top + down)},
          .color = color};
}

// Draws the shapes of one image, placed so that no shape hides much of another.
std::vector<Shape> draw_shapes(Random& random) {
  std::vector<Shape> shapes;
  const int wanted = draw(random, 1, 3);
  for (int i = 0; i < wanted; ++i) {
    const Shape shape = draw_shape(random);
    const bool hides = std::any_of(shapes.begin(), shapes.end(), [&](const Shape& other) {
      return intersection(shape.box, other.box) > 0.1 * std::min(shape.area(), other.area());
    });
    if (!hides) shapes.push_back(shape);
  }
  return shapes;
}

Image paint(const std::vector<Shape>& shapes, Random& random) {
  Image image = examples::blank_image(image_width, image_height, examples::Colors::rgb);
  std::uint8_t* value = image.pixels.data();
  for (std::size_t y = 0; y < image_height; ++y) {
    for (std::size_t x = 0; x < image_width; ++x) {
      Color color{};
      for (std::uint8_t& part : color) part = static_cast<std::uint8_t>(draw(random, 0, 50));
      for (const Shape& shape : shapes) {
        if (shape.covers(static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5)) {
          color = shape.color;
        }
      }
      value = std::copy(color.begin(), color.end(), value);
    }
  }
  return image;
}

json annotation_of(const Shape& shape, std::size_t id, std::size_t picture) {
  return {{"id", id},
          {"image_id", picture},
          {"category_id", shape.category},
          {"bbox", {shape.box.left, shape.box.top, shape.box.width(), shape.box.height()}},
          {"area", shape.area()},
          {"iscrowd", 0}};
}

void generate_part(const fs::path& directory, const std::string& part, std::size_t pictures,
                   Random& random) {
  fs::create_directories(directory / part);
  fs::create_directories(directory / "annotations");
  json document = {
      {"images", json::array()},
      {"annotations", json::array()},
      {"categories",
       {{{"id", rectangle}, {"name", "rectangle"}}, {{"id", disc}, {"name", "disc"}}}}};
  for (std::size_t id = 1; id <= pictures; ++id) {
    const std::string file = fmt::format("{:012}.jpg", id);
    const std::vector<Shape> shapes = draw_shapes(random);
    examples::write_image(directory / part / file, paint(shapes, random));
    document["images"].push_back(
        {{"id", id}, {"file_name", file}, {"width", image_width}, {"height", image_height}});
    for (const Shape& shape : shapes) {
      json& list = document["annotations"];
      list.push_back(annotation_of(shape, list.size() + 1, id));
    }
  }
  const fs::path file = directory / "annotations" / fmt::format("instances_{}.json", part);
  std::ofstream stream(file);
  stream << document.dump(1) << '\n';
  if (!stream.flush()) {
    throw std::runtime_error(fmt::format("cannot write '{}'", file.string()));
  }
}

}  // namespace

void generate(const fs::path& directory, std::size_t pictures, std::uint64_t seed) {
  Random random(seed);
  generate_part(directory, "train2017", pictures, random);
  generate_part(directory, "val2017", (pictures + 3) / 4, random);
}

}  // namespace retinanet
