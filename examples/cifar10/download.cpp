// SPDX-License-Identifier: Apache-2.0
#include "download.hpp"

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <kolo/training.hpp>
#include <memory>
#include <stdexcept>
#include <vector>

#include "unpack.hpp"

namespace cifar10 {
namespace {

namespace fs = std::filesystem;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct CloseCurl {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

std::size_t write_to_file(char* data, std::size_t size, std::size_t count, void* file) {
  return std::fwrite(data, size, count, static_cast<std::FILE*>(file));
}

int show_progress(void* bar, curl_off_t, curl_off_t now, curl_off_t, curl_off_t) {
  static_cast<kolo::ProgressBar*>(bar)->update(now >> 20);
  return 0;
}

void fetch(const Archive& archive, const fs::path& target) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(target.c_str(), "wb"));
  if (!file) {
    throw std::runtime_error(
        fmt::format("cannot write '{}': {}", target.string(), std::strerror(errno)));
  }
  const std::unique_ptr<CURL, CloseCurl> curl(curl_easy_init());
  if (!curl) throw std::runtime_error("libcurl could not be started");

  kolo::ProgressBar bar(
      {.title = "download (MB)", .total = static_cast<std::int64_t>(archive.bytes >> 20)});
  std::array<char, CURL_ERROR_SIZE> reason{};
  curl_easy_setopt(curl.get(), CURLOPT_URL, archive.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 30L);
  // Give up after 60 seconds below 1000 bytes/s.
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, write_to_file);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, file.get());
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, show_progress);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &bar);

  const CURLcode code = curl_easy_perform(curl.get());
  if (code == CURLE_OK && std::fflush(file.get()) == 0) return;
  throw std::runtime_error(
      fmt::format("cannot download {}: {}", archive.url,
                  reason[0] != '\0' ? reason.data() : curl_easy_strerror(code)));
}

void check(const Archive& archive, const fs::path& file) {
  const std::string md5 = md5_of(file);
  if (md5 == archive.md5) return;
  throw std::runtime_error(
      fmt::format("what came from {} is not the data set: expected MD5 {}, found {} ({} bytes)",
                  archive.url, archive.md5, md5, fs::file_size(file)));
}

// Removes an unfinished file or directory on failure.
struct Unfinished {
  fs::path path;
  ~Unfinished() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

std::string md5_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("cannot read '{}'", file.string()));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL gives no MD5");
  }
  std::vector<char> buffer(1 << 20);
  while (stream) {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(stream.gcount()));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

void download(const Archive& archive, const fs::path& directory) {
  if (fs::exists(directory / archive.content)) return;
  fs::create_directories(directory);
  const Unfinished fetched{directory / (archive.file + ".part")};
  fetch(archive, fetched.path);
  check(archive, fetched.path);

  // Unpacked under a temporary name and then renamed, so that an interrupted run leaves no partial
  // data set.
  const Unfinished unpacked{directory / (archive.content + ".part")};
  fs::create_directories(unpacked.path);
  unpack(fetched.path, unpacked.path);
  fs::rename(unpacked.path / archive.content, directory / archive.content);
}

}  // namespace cifar10
