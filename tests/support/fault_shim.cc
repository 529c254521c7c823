// A library for LD_PRELOAD that makes one system call or allocation of a program fail, or kills the
// program there. It only counts calls on files below a folder, from the first such file that is
// opened on; the start of the program is not affected.
//
//   KVLIFT_FAULT_DIR    the folder
//   KVLIFT_FAULT        CALL:N:ERRNO, or CALL:N:kill, for the N-th call of that name, from 1;
//                       CALL may be "io", which counts all calls except allocations
//   KVLIFT_FAULT_COUNT  a file that gets the number of calls of each name: lines "CALL N"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Call { kOpen, kRead, kWrite, kFsync, kClose, kRename, kLink, kMap, kCopy, kSize, kAlloc, kIo };
constexpr const char* kNames[] = {"open", "read", "write", "fsync", "close", "rename",
                                  "link", "map",  "copy",  "size",  "alloc", "io"};
constexpr int kCalls = kIo + 1;

std::atomic<long> counts[kCalls];
std::atomic<bool> started = false;
thread_local bool inside = false;  // the call comes from the shim itself

struct Fault {
  int call = -1;
  long at = 0;
  int error = 0;  // 0: kill
};

Fault fault;
const char* folder = nullptr;

__attribute__((constructor)) void ReadSettings() {
  folder = std::getenv("KVLIFT_FAULT_DIR");
  const char* text = std::getenv("KVLIFT_FAULT");
  if (text == nullptr) return;
  for (int call = 0; call < kCalls; ++call) {
    const size_t length = std::strlen(kNames[call]);
    if (std::strncmp(text, kNames[call], length) != 0 || text[length] != ':') continue;
    char* end = nullptr;
    fault.call = call;
    fault.at = std::strtol(text + length + 1, &end, 10);
    fault.error = *end == ':' && std::strcmp(end + 1, "kill") != 0 ? std::atoi(end + 1) : 0;
  }
}

__attribute__((destructor)) void WriteCounts() {
  const char* path = std::getenv("KVLIFT_FAULT_COUNT");
  if (path == nullptr) return;
  inside = true;
  if (std::FILE* file = std::fopen(path, "w")) {
    for (int call = 0; call < kCalls; ++call) {
      std::fprintf(file, "%s %ld\n", kNames[call], counts[call].load());
    }
    std::fclose(file);
  }
}

bool CountOne(int call) {
  const long n = ++counts[call];
  if (call != fault.call || n != fault.at) return false;
  if (fault.error == 0) kill(getpid(), SIGKILL);
  errno = fault.error;
  return true;
}

// Returns true, with errno set, if this call is the one that fails.
bool Fails(Call call) {
  if (inside || !started) return false;
  inside = true;
  const bool io = call != kAlloc && CountOne(kIo);
  const bool own = CountOne(call);
  inside = false;
  return io || own;
}

bool Below(const char* path) {
  return folder != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool OfFolder(int fd) {
  char link[64], path[PATH_MAX + 1];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, PATH_MAX);
  if (n <= 0) return false;
  path[n] = '\0';
  return Below(path);
}

bool FailsOn(int fd, Call call) {
  const int kept = errno;
  if (!OfFolder(fd)) return errno = kept, false;
  errno = kept;
  return Fails(call);
}

bool OpenFails(int directory, const char* path) {
  if (!Below(path) && !(path[0] != '/' && directory >= 0 && OfFolder(directory))) return false;
  started = true;
  return Fails(kOpen);
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define KV_REAL(name) static const auto real = Next<decltype(&name)>(#name)
#define KV_MODE                                    \
  mode_t mode = 0;                                 \
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {      \
    va_list list;                                  \
    va_start(list, flags);                         \
    mode = static_cast<mode_t>(va_arg(list, int)); \
    va_end(list);                                  \
  }

extern "C" {

int open(const char* path, int flags, ...) {
  KV_MODE
  KV_REAL(open);
  return OpenFails(-1, path) ? -1 : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  KV_MODE
  KV_REAL(open64);
  return OpenFails(-1, path) ? -1 : real(path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  KV_MODE
  KV_REAL(openat);
  return OpenFails(directory, path) ? -1 : real(directory, path, flags, mode);
}
// The C library has no function for openat2.
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  KV_REAL(syscall);
  if (number == SYS_openat2 &&
      OpenFails(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]))) {
    return -1;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
FILE* fopen(const char* path, const char* mode) {
  KV_REAL(fopen);
  return OpenFails(-1, path) ? nullptr : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  KV_REAL(fopen64);
  return OpenFails(-1, path) ? nullptr : real(path, mode);
}
ssize_t read(int fd, void* data, size_t size) {
  KV_REAL(read);
  return FailsOn(fd, kRead) ? -1 : real(fd, data, size);
}
ssize_t pread(int fd, void* data, size_t size, off_t at) {
  KV_REAL(pread);
  return FailsOn(fd, kRead) ? -1 : real(fd, data, size, at);
}
ssize_t write(int fd, const void* data, size_t size) {
  KV_REAL(write);
  return FailsOn(fd, kWrite) ? -1 : real(fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  KV_REAL(pwrite);
  return FailsOn(fd, kWrite) ? -1 : real(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  KV_REAL(writev);
  return FailsOn(fd, kWrite) ? -1 : real(fd, parts, count);
}
int fsync(int fd) {
  KV_REAL(fsync);
  return FailsOn(fd, kFsync) ? -1 : real(fd);
}
int fdatasync(int fd) {
  KV_REAL(fdatasync);
  return FailsOn(fd, kFsync) ? -1 : real(fd);
}
// The kernel also frees the descriptor if close fails.
int close(int fd) {
  KV_REAL(close);
  const bool fails = FailsOn(fd, kClose);
  const int error = errno, result = real(fd);
  if (!fails) return result;
  errno = error;
  return -1;
}
int rename(const char* from, const char* to) {
  KV_REAL(rename);
  return Below(to) && Fails(kRename) ? -1 : real(from, to);
}
int renameat(int a, const char* from, int b, const char* to) {
  KV_REAL(renameat);
  return (Below(to) || OfFolder(b)) && Fails(kRename) ? -1 : real(a, from, b, to);
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  KV_REAL(renameat2);
  return (Below(to) || OfFolder(b)) && Fails(kRename) ? -1 : real(a, from, b, to, flags);
}
int link(const char* from, const char* to) {
  KV_REAL(link);
  return Below(to) && Fails(kLink) ? -1 : real(from, to);
}
int linkat(int a, const char* from, int b, const char* to, int flags) {
  KV_REAL(linkat);
  return (Below(to) || OfFolder(b)) && Fails(kLink) ? -1 : real(a, from, b, to, flags);
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  KV_REAL(mmap);
  const bool fails = fd >= 0 && FailsOn(fd, kMap);
  return fails ? MAP_FAILED : real(at, size, protection, flags, fd, offset);
}
ssize_t copy_file_range(int from, off_t* a, int to, off_t* b, size_t size, unsigned flags) {
  KV_REAL(copy_file_range);
  return FailsOn(to, kCopy) ? -1 : real(from, a, to, b, size, flags);
}
int ftruncate(int fd, off_t size) {
  KV_REAL(ftruncate);
  return FailsOn(fd, kSize) ? -1 : real(fd, size);
}
int posix_fallocate(int fd, off_t at, off_t size) {
  KV_REAL(posix_fallocate);
  return FailsOn(fd, kSize) ? errno : real(fd, at, size);
}
int fallocate(int fd, int mode, off_t at, off_t size) {
  KV_REAL(fallocate);
  return FailsOn(fd, kSize) ? -1 : real(fd, mode, at, size);
}

// The names that the C library itself calls; dlsym allocates.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) { return Fails(kAlloc) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return Fails(kAlloc) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  return Fails(kAlloc) ? nullptr : __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  return Fails(kAlloc) ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return Fails(kAlloc) ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** result, size_t alignment, size_t size) {
  if (Fails(kAlloc)) return ENOMEM;
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}

}  // extern "C"
