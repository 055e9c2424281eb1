// Compiled and tried under Wine only (docs/never-run.md).
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <cstdint>

#include "load_failure.h"
#include "shared_library.h"

namespace tessera::shared_library {
namespace {

std::wstring wide(const std::string& text) {
  const int bytes = static_cast<int>(text.size());
  std::wstring result(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, nullptr, 0)), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, result.data(), static_cast<int>(result.size()));
  return result;
}

std::string utf8(const wchar_t* text, size_t length) {
  const int units = static_cast<int>(length);
  const int bytes = WideCharToMultiByte(CP_UTF8, 0, text, units, nullptr, 0, nullptr, nullptr);
  std::string result(static_cast<size_t>(bytes), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text, units, result.data(), bytes, nullptr, nullptr);
  return result;
}

std::string words(DWORD error) {
  wchar_t text[512];
  const DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, error, 0,
                                      text, static_cast<DWORD>(sizeof text / sizeof *text), nullptr);
  std::string result = utf8(text, length);
  while (!result.empty() && (result.back() == '\n' || result.back() == '\r')) result.pop_back();
  return result + " (Windows error " + std::to_string(error) + ")";
}

bool isSlash(wchar_t c) { return c == L'\\' || c == L'/'; }

// C:\folder\file or \\server\share\file. "\file" and "C:file" depend on where the process stands.
bool isAbsolute(const std::wstring& path) {
  const bool drive = path.size() > 2 && path[1] == L':' && isSlash(path[2]);
  const bool share = path.size() > 2 && isSlash(path[0]) && isSlash(path[1]);
  return drive || share;
}

struct File {
  HANDLE handle;
  ~File() {
    if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
  }
};

}  // namespace

std::string realPath(const std::string& path) {
  const std::wstring given = wide(path);
  if (!isAbsolute(given)) throw notAbsolute(path);
  // For its name alone, which also a file that others write to gives; BACKUP_SEMANTICS lets a folder be opened too.
  const DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const File file{CreateFileW(given.c_str(), 0, sharing, nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr)};
  if (file.handle == INVALID_HANDLE_VALUE) {
    const DWORD error = GetLastError();
    if (error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND) throw unusable(path, "does not exist");
    throw unusable(path, "can't be read: " + words(error));
  }
  BY_HANDLE_FILE_INFORMATION info;
  if (!GetFileInformationByHandle(file.handle, &info) || (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
    throw unusable(path, "is not a file");
  std::wstring real(static_cast<size_t>(GetFinalPathNameByHandleW(file.handle, nullptr, 0, 0)), L'\0');
  real.resize(GetFinalPathNameByHandleW(file.handle, real.data(), static_cast<DWORD>(real.size()), 0));
  if (real.empty()) throw unusable(path, "can't be read: " + words(GetLastError()));
  // \\?\C:\file is C:\file, and \\?\UNC\server\file is \\server\file.
  if (real.compare(0, 8, L"\\\\?\\UNC\\") == 0)
    real.replace(0, 8, L"\\\\");
  else if (real.compare(0, 4, L"\\\\?\\") == 0)
    real.erase(0, 4);
  return utf8(real.data(), real.size());
}

void* open(const std::string& path) {
  // No message box about a damaged file; what the library needs is looked for beside it and where Windows is, never in the
  // folder that the process stands in.
  DWORD before = 0;
  SetThreadErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX, &before);
  const DWORD where = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
  HMODULE library = LoadLibraryExW(wide(path).c_str(), nullptr, where);
  const DWORD error = GetLastError();
  SetThreadErrorMode(before, nullptr);
  if (!library) throw unusable(path, "can't be loaded: " + words(error));
  return library;
}

void* symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

void pin(const void* address) {
  HMODULE library = nullptr;
  GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                     static_cast<const wchar_t*>(address), &library);
}

}  // namespace tessera::shared_library
#endif
