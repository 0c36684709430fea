// SPDX-License-Identifier: Apache-2.0
#include "remote_shell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace kolorun {
namespace {

std::string program_name(const std::string& program) {
  return program.substr(program.rfind('/') + 1);
}

/// Quotes the text so that any remote shell takes it as one word.
std::string quote(const std::string& text) {
  if (text.find('\'') == std::string::npos) return '\'' + text + '\'';
  throw std::runtime_error(fmt::format("the path of kolorun has a quote: {}", text));
}

/// ssh must not prompt, since nobody would see it, and must notice a lost host.
std::vector<std::string> options_of(const std::string& program) {
  if (program_name(program) != "ssh") return {};
  return {"-x", "-T",
          "-o", "BatchMode=yes",
          "-o", "ServerAliveInterval=10",
          "-o", "ServerAliveCountMax=3"};
}

}  // namespace

std::vector<std::string> agent_command(const std::vector<std::string>& rsh, const std::string& host,
                                       const std::string& program) {
  std::vector<std::string> command = rsh;
  if (program_name(rsh.front()) == "srun") {  // it has no operand for the host, and uses no shell
    for (std::string word : {"--nodelist=" + host, program, std::string("--agent")})
      command.push_back(std::move(word));
    return command;
  }
  std::ranges::copy(options_of(rsh.front()), std::back_inserter(command));
  command.push_back(host);
  command.push_back(quote(program) + " --agent");
  return command;
}

bool passes_environment(const std::vector<std::string>& rsh) {
  return program_name(rsh.front()) == "srun" || program_name(rsh.front()) == "blaunch";
}

}  // namespace kolorun
