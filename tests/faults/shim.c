/* Stands between a process and the C library, for files below one folder, and breaks one chosen call.

   Built as a shared object and named in LD_PRELOAD; nothing happens until a process calls `fault_arm`. From then
   on each call that changes a file below the folder counts: open for writing, write, ftruncate, fsync, close,
   rename, unlink, mkdir, rmdir. The one whose number is `at` is broken as `act` says:

     kill      SIGKILL before the call            tear   the first `arg` bytes are written, then SIGKILL
     error     the call fails with errno `arg`    short  no more than `arg` bytes are written
     signal    signal `arg` comes, then the call

   With `errors` and `signals` so is each call from `at` on, as on a full disk. With a log, each call is a line in it:
   number, name, size of the file behind it, path. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    int armed, busy, log;
    long seen, at, arg;
    char under[PATH_MAX], ops[256], act[16];
} plan;
static long long wall_offset_s;

void fault_arm(const char *under, const char *ops, long at, const char *act, long arg, const char *log) {
    memset(&plan, 0, sizeof plan);
    snprintf(plan.under, sizeof plan.under, "%s/", under);
    snprintf(plan.ops, sizeof plan.ops, ",%s,", ops);
    snprintf(plan.act, sizeof plan.act, "%s", act);
    plan.at = at;
    plan.arg = arg;
    plan.log = log[0] ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    plan.armed = 1;
}

void fault_wall(long long seconds) { wall_offset_s = seconds; }

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* the path of `name` in the folder `dir`, as far as it can be told; 0 where that is not below ours */
static int below(int dir, const char *name, char *out) {
    char link[64];
    ssize_t size = 0;
    out[0] = 0;
    if (!name || name[0] != '/') {
        if (dir == AT_FDCWD) {
            if (!getcwd(out, PATH_MAX)) return 0;
            size = (ssize_t)strlen(out);
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            size = readlink(link, out, PATH_MAX - 1);
            if (size < 0) return 0;
            out[size] = 0;
        }
        if (name) snprintf(out + size, (size_t)(PATH_MAX - size), "/%s", name);
    } else {
        snprintf(out, PATH_MAX, "%s", name);
    }
    return strncmp(out, plan.under, strlen(plan.under)) == 0;
}

/* Counts a call. 0: let it be; -1: it fails, errno is set; -2: it is torn or short, which the caller does */
static int met(const char *op, int dir, const char *name, int fd) {
    char path[PATH_MAX], wanted[32], line[PATH_MAX + 80];
    struct stat info = {0};
    int found = 0, kept = errno;
    if (!plan.armed || plan.busy) return 0;
    plan.busy = 1;
    snprintf(wanted, sizeof wanted, ",%s,", op);
    if (strstr(plan.ops, wanted) && below(dir, name, path)) {
        plan.seen++;
        if (plan.log >= 0) {
            if (fd >= 0) fstat(fd, &info);
            int size = snprintf(line, sizeof line, "%ld %s %lld %s\n", plan.seen, op, (long long)info.st_size, path);
            if (syscall(SYS_write, plan.log, line, (size_t)size) < 0) abort();
        }
        int more = !strcmp(plan.act, "errors") || !strcmp(plan.act, "signals");
        if ((more && plan.at && plan.seen >= plan.at) || (plan.at && plan.seen == plan.at)) {
            if (!strcmp(plan.act, "kill")) kill(getpid(), SIGKILL);
            if (!strncmp(plan.act, "signal", 6)) kill(getpid(), (int)plan.arg);
            if (!strncmp(plan.act, "error", 5)) { kept = (int)plan.arg; found = -1; }
            if (!strcmp(plan.act, "tear") || !strcmp(plan.act, "short")) found = -2;
        }
    }
    plan.busy = 0;
    errno = kept;
    return found;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int what = met("write", fd, NULL, fd);
    if (what == -1) return -1;
    if (what == -2) {
        ssize_t done = real(fd, data, size < (size_t)plan.arg ? size : (size_t)plan.arg);
        if (!strcmp(plan.act, "tear")) kill(getpid(), SIGKILL);
        return done;
    }
    return real(fd, data, size);
}

int fsync(int fd) { REAL(fsync); return met("fsync", fd, NULL, fd) ? -1 : real(fd); }
int ftruncate(int fd, off_t to) { REAL(ftruncate); return met("ftruncate", fd, NULL, fd) ? -1 : real(fd, to); }
int ftruncate64(int fd, off64_t to) { REAL(ftruncate64); return met("ftruncate", fd, NULL, fd) ? -1 : real(fd, to); }

/* a close that fails has closed all the same */
int close(int fd) {
    REAL(close);
    int what = met("close", fd, NULL, fd), kept = errno, done = real(fd);
    if (!what) return done;
    errno = kept;
    return -1;
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return met("rename", AT_FDCWD, to, -1) ? -1 : real(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
    REAL(renameat);
    return met("rename", b, to, -1) ? -1 : real(a, from, b, to);
}
int unlink(const char *name) { REAL(unlink); return met("unlink", AT_FDCWD, name, -1) ? -1 : real(name); }
int unlinkat(int dir, const char *name, int flags) {
    REAL(unlinkat);
    return met(flags & AT_REMOVEDIR ? "rmdir" : "unlink", dir, name, -1) ? -1 : real(dir, name, flags);
}
int rmdir(const char *name) { REAL(rmdir); return met("rmdir", AT_FDCWD, name, -1) ? -1 : real(name); }
int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    return met("mkdir", AT_FDCWD, name, -1) ? -1 : real(name, mode);
}
int mkdirat(int dir, const char *name, mode_t mode) {
    REAL(mkdirat);
    return met("mkdir", dir, name, -1) ? -1 : real(dir, name, mode);
}

#define CHANGES(flags) (((flags) & O_ACCMODE) != O_RDONLY)
#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *name, int flags, ...) {
    REAL(open);
    MODE(flags)
    return CHANGES(flags) && met("open", AT_FDCWD, name, -1) ? -1 : real(name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    REAL(open64);
    MODE(flags)
    return CHANGES(flags) && met("open", AT_FDCWD, name, -1) ? -1 : real(name, flags, mode);
}
int openat(int dir, const char *name, int flags, ...) {
    REAL(openat);
    MODE(flags)
    return CHANGES(flags) && met("open", dir, name, -1) ? -1 : real(dir, name, flags, mode);
}
int openat64(int dir, const char *name, int flags, ...) {
    REAL(openat64);
    MODE(flags)
    return CHANGES(flags) && met("open", dir, name, -1) ? -1 : real(dir, name, flags, mode);
}

/* the wall clock, moved; every other clock is as it is */
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int found = real(clock, now);
    if (!found && clock == CLOCK_REALTIME) now->tv_sec += wall_offset_s;
    return found;
}
