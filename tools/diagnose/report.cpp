// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace diagnose {

std::string to_text(const Diagnosis& diagnosis, const std::vector<Record>& records,
                    const std::vector<std::string>& damaged) {
  std::string text =
      fmt::format("{}\n\nsession {}, {} of {} ranks left a record:\n", diagnosis.verdict,
                  diagnosis.session, records.size(), diagnosis.size);
  for (const Record& record : records)
    text += fmt::format("  rank {} ({}, process {}): {} operations submitted, {} done; {}\n",
                        record.rank, record.host, record.process, record.submitted, record.finished,
                        record.reason);
  if (!diagnosis.findings.empty()) text += "\nfindings:\n";
  for (const Finding& finding : diagnosis.findings)
    text += fmt::format("  {}: {}\n", to_string(finding.kind), finding.text);
  if (!damaged.empty()) text += "\nnot read:\n";
  for (const std::string& one : damaged) text += "  " + one + '\n';
  return text;
}

std::string to_json(const Diagnosis& diagnosis, const std::vector<Record>& records,
                    const std::vector<std::string>& damaged) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson json{{"verdict", diagnosis.verdict},
                   {"session", diagnosis.session},
                   {"size", diagnosis.size},
                   {"missing", diagnosis.missing},
                   {"records", OrderedJson::array()},
                   {"findings", OrderedJson::array()},
                   {"not_read", damaged}};
  for (const Record& record : records)
    json["records"].push_back({{"rank", record.rank},
                               {"file", record.file},
                               {"host", record.host},
                               {"process", record.process},
                               {"submitted", record.submitted},
                               {"finished", record.finished},
                               {"reason", record.reason}});
  for (const Finding& finding : diagnosis.findings) {
    OrderedJson operations = OrderedJson::array();
    for (const Waiting& one : finding.operations)
      operations.push_back({{"name", one.key.name},
                            {"set", one.key.set},
                            {"number", one.key.count},
                            {"details", one.details},
                            {"seconds", one.seconds},
                            {"pending_on", one.pending_on},
                            {"executing_on", one.executing_on},
                            {"done_on", one.done_on},
                            {"absent_on", one.absent_on}});
    json["findings"].push_back({{"kind", to_string(finding.kind)},
                                {"culprits", finding.culprits},
                                {"text", finding.text},
                                {"operations", std::move(operations)}});
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

}  // namespace diagnose
