// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

namespace diagnose {
namespace {

// In pixels.
constexpr double left = 150;   // the names of the ranks
constexpr double width = 900;  // the bars
constexpr double right = 230;  // the means of the ranks
constexpr double top = 84;     // title, legend and steps
constexpr double bottom = 34;  // the axis
constexpr double bars_high = 640;
constexpr double min_row = 6;
constexpr double max_row = 26;
constexpr double smallest_text = 9;
constexpr std::size_t max_name = 48;  // bytes of a name from the run

constexpr std::string_view computing_color = "#9ecae1";
constexpr std::string_view late_color = "#e6550d";
constexpr std::string_view waiting_color = "#d9d9d9";
constexpr std::string_view reducing_color = "#31a354";

double milliseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; }

/// As text of an XML document.
std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text.substr(0, max_name)) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return text.size() > max_name ? escaped + "..." : escaped;
}

/// A part of a row.
struct Stripe {
  double y;
  double height;
};

class Picture {
 public:
  explicit Picture(const Activity& activity)
      : activity_(activity),
        shown_{activity.steps.front().begin, activity.steps.back().end},
        row_(std::clamp(bars_high / static_cast<double>(activity.ranks.size()), min_row, max_row)) {
  }

  std::string draw() {
    const double height = top + row_ * static_cast<double>(activity_.ranks.size()) + bottom;
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" )"
        R"(viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">)",
        left + width + right, height);
    add(R"(<rect width="100%" height="100%" fill="white"/>)");
    add(R"(<text x="10" y="22" font-size="15">{}</text>)", escape_line(describe(activity_)));
    draw_legend();
    for (std::size_t index = 0; index < activity_.ranks.size(); ++index) draw_rank(index);
    draw_steps(height - bottom);
    draw_axis(height - bottom);
    add("</svg>");
    return std::move(text_);
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '\n';
  }

  /// A whole line, which has been put together from names of limited length.
  static std::string escape_line(const std::string& line) {
    std::string escaped;
    for (std::size_t at = 0; at < line.size(); at += max_name)
      escaped += escape(line.substr(at, max_name));
    return escaped;
  }

  [[nodiscard]] double x_of(std::int64_t time) const {
    return left +
           width * static_cast<double>(time - shown_.begin) / static_cast<double>(shown_.length());
  }

  void draw_legend() {
    double x = left;
    for (const auto& [color, text] : std::array<std::pair<std::string_view, std::string_view>, 4>{
             {{computing_color, "computing"},
              {late_color, "computing while others wait for this rank"},
              {waiting_color, "waiting for other ranks"},
              {reducing_color, "reducing"}}}) {
      add(R"(<rect x="{:.0f}" y="36" width="12" height="12" fill="{}"/>)", x, color);
      add(R"(<text x="{:.0f}" y="46">{}</text>)", x + 17, text);
      x += 40 + 6.6 * static_cast<double>(text.size());
    }
  }

  void draw_rank(std::size_t index) {
    const RankActivity& rank = activity_.ranks[index];
    const double y = top + row_ * static_cast<double>(index);
    const bool is_late = activity_.late_rank && activity_.late_rank->rank == rank.rank;
    std::string name = fmt::format("rank {}", rank.rank);
    if (!rank.host.empty()) name += fmt::format(" ({})", rank.host);
    draw_text(10, y, is_late, escape(name));
    const Stripe whole{y + row_ * 0.1, row_ * 0.8};
    // Below the bar of what the program did meanwhile, which stays visible.
    const Stripe lower{y + row_ * 0.6, row_ * 0.3};
    draw_bars(rank.computing, whole, computing_color, fmt::format("rank {}: computing", rank.rank));
    for (std::size_t step = 0; step < activity_.steps.size(); ++step)
      if (late_in(activity_, step) == index)
        draw_bars(awaited_in(index, activity_.steps[step]), whole, late_color,
                  fmt::format("step {}: others wait for rank {}", activity_.first_step + step,
                              rank.rank));
    draw_bars(rank.waiting, whole, waiting_color, fmt::format("rank {}: waiting", rank.rank));
    draw_bars(rank.reducing, lower, reducing_color, fmt::format("rank {}: reducing", rank.rank));
    const auto mean = [&](const std::vector<Span>& spans) {
      return milliseconds(length_of(spans)) / static_cast<double>(activity_.steps.size());
    };
    std::string means = fmt::format("{:.1f} ms computing, {:.1f} waiting", mean(rank.computing),
                                    mean(rank.waiting));
    if (rank.dropped > 0) means += fmt::format("; {} spans lost", rank.dropped);
    draw_text(left + width + 8, y, is_late, means);
  }

  /// When the rank computes while others wait.
  [[nodiscard]] std::vector<Span> awaited_in(std::size_t index, const Span& step) const {
    std::vector<Span> waiting;
    for (std::size_t other = 0; other < activity_.ranks.size(); ++other)
      if (other != index)
        std::ranges::copy(clip(activity_.ranks[other].waiting, step), std::back_inserter(waiting));
    const std::vector<Span> computing = clip(activity_.ranks[index].computing, step);
    return subtract(computing, subtract(computing, unite(std::move(waiting))));
  }

  void draw_text(double x, double y, bool is_late, const std::string& text) {
    if (row_ < smallest_text && !is_late) return;
    add(R"(<text x="{:.0f}" y="{:.1f}" font-size="{:.0f}"{}>{}</text>)", x, y + row_ / 2 + 4,
        std::clamp(row_ - 4, smallest_text, 12.0), is_late ? R"( font-weight="bold")" : "", text);
  }

  /// Bars that no eye tells apart are one, so that the size of the picture has a limit.
  void draw_bars(const std::vector<Span>& spans, const Stripe& at, std::string_view color,
                 const std::string& what) {
    for (const Span& span :
         unite(spans, static_cast<std::int64_t>(static_cast<double>(shown_.length()) / width / 4)))
      add(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}">)"
          "<title>{} {:.3f} ms{}{}</title></rect>",
          x_of(span.begin), at.y, std::max(0.25, x_of(span.end) - x_of(span.begin)), at.height,
          color, what, milliseconds(span.length()), span.text.empty() ? "" : ", ",
          escape(span.text));
  }

  /// A line where each step begins, and its number where there is room.
  void draw_steps(double floor) {
    double free_from = left - 12;
    for (std::size_t step = 0; step < activity_.steps.size(); ++step) {
      const double x = x_of(activity_.steps[step].begin);
      add(R"(<path d="M{0:.2f} {1}V{2}" stroke="#636363" stroke-dasharray="2,2"/>)", x, top - 8,
          floor);
      if (x < free_from) continue;
      add(R"(<text x="{:.1f}" y="{}">{}{}</text>)", x + 3, top - 12, step == 0 ? "step " : "",
          activity_.first_step + step);
      free_from = x + (step == 0 ? 70 : 40);
    }
  }

  void draw_axis(double floor) {
    const double all = milliseconds(shown_.length());
    double unit = std::pow(10.0, std::floor(std::log10(all / 4)));
    while (all / unit > 12) unit *= all / unit > 24 ? 5 : 2;
    for (double at = 0; at <= all; at += unit) {
      const double x = left + width * at / all;
      add(R"(<path d="M{0:.2f} {1}v5" stroke="black"/>)", x, floor);
      add(R"(<text x="{:.2f}" y="{}" text-anchor="middle">{:g}{}</text>)", x, floor + 20, at,
          at == 0 ? " ms" : "");
    }
  }

  const Activity& activity_;
  const Span shown_;
  const double row_;  // its height
  std::string text_{};
};

}  // namespace

std::string describe(const Activity& activity) {
  const std::size_t last = activity.first_step + activity.steps.size() - 1;
  std::string text = fmt::format("steps {} to {} of {}, {} ranks", activity.first_step, last,
                                 activity.all_steps, activity.ranks.size());
  if (activity.step_name.empty()) text = fmt::format("{} ranks", activity.ranks.size());
  if (const std::optional<LateRank>& late = activity.late_rank)
    text += fmt::format("; rank {} is late by {:.1f} ms per step of {:.1f} ms", late->rank,
                        milliseconds(late->by), milliseconds(late->step));
  const std::size_t last_index = activity.steps.size() - 1;
  if (const auto late = late_in(activity, last_index); late && activity.is_cut_off)
    text += fmt::format("; at the end, operations wait for rank {}", activity.ranks[*late].rank);
  return text;
}

std::string draw(const Activity& activity) { return Picture(activity).draw(); }

}  // namespace diagnose
