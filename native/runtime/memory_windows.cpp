// Memory from Windows. It lets nobody cut a file short while it is mapped, so nothing is watched.
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <string>
#include <system_error>

#include "errors.h"
#include "memory.h"

namespace satchel {

namespace {

std::string last_error() {
  return std::system_category().message(static_cast<int>(GetLastError()));
}

// Paths are UTF-8, as everywhere in the core.
std::wstring wide(const std::string& text) {
  const int length = static_cast<int>(text.size());
  const int size = MultiByteToWideChar(CP_UTF8, 0, text.data(), length, nullptr, 0);
  std::wstring out(static_cast<size_t>(size), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), length, out.data(), size);
  return out;
}

class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  ~Handle() {
    if (*this) CloseHandle(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  explicit operator bool() const { return handle_ && handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Handle file(CreateFileW(wide(path).c_str(), GENERIC_READ,
                                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (!file) {
    throw FormatError("file", 0, "cannot open " + path + ": " + last_error(), "Check the path.");
  }
  LARGE_INTEGER size{};
  const bool regular =
      GetFileType(file.get()) == FILE_TYPE_DISK && GetFileSizeEx(file.get(), &size);
  if (!regular || size.QuadPart == 0) {
    throw FormatError("file", 0, path + (regular ? " is empty" : " is not a regular file"),
                      "Give a program, as satchel export writes it.");
  }
  // The view keeps the mapping and the file open after both handles are closed.
  const Handle mapping(CreateFileMappingW(file.get(), nullptr, PAGE_READONLY, 0, 0, nullptr));
  void* address = mapping ? MapViewOfFile(mapping.get(), FILE_MAP_READ, 0, 0, 0) : nullptr;
  if (!address) {
    throw FormatError("file", 0, "cannot map " + path + ": " + last_error(),
                      "Is there enough address space?");
  }
  data_ = static_cast<const uint8_t*>(address);
  size_ = static_cast<uint64_t>(size.QuadPart);
}

MappedFile::~MappedFile() { UnmapViewOfFile(data_); }

uint64_t physical_memory() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : UINT64_MAX;
}

ZeroedPages::ZeroedPages(size_t size) : size_(size) {
  if (size == 0) return;
  data_ =
      static_cast<uint8_t*>(VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
  if (!data_) {
    throw ExecutionError("the system has no " + std::to_string(size) + " bytes of memory to give");
  }
}

ZeroedPages::~ZeroedPages() {
  if (data_) VirtualFree(data_, 0, MEM_RELEASE);
}

}  // namespace satchel
