/* Kills a run in the middle of a write: a library for LD_PRELOAD, driven by tests/kill_at_byte.py.
 *
 * KILL_AT_BYTE names a file that all processes of a run map, and that the test maps too: `struct control`. What they
 * write into files below one directory is counted there. Once `left` is set, the write that would use it up is torn: of
 * its bytes only those in front are written, and SIGKILL comes before the call returns. So no byte that was counted is
 * written later, as when the machine's power goes between two bytes.
 *
 * What changes names (rename, unlink, ...) or cuts a file counts as OPERATION_BYTES. It cannot be torn: where `left` ends
 * in its first half it is not made, else it is. A sync counts nothing: whoever comes after a SIGKILL finds the same files
 * before and after it. Not seen is what C++ writes through stdio; pedl-run and Python write without it.
 *
 * The kernel is called without libc's own functions, so it does not matter which of them a program was linked to.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
/* About a line of the journal. */
#define OPERATION_BYTES 256
#define PATH_BYTES 4096
#define WHAT_BYTES 512

/* tests/kill_at_byte.py knows this layout. */
struct control {
    int64_t left;                  /* 0: nobody is killed */
    int64_t counted;               /* since the file was made */
    int32_t only_writer;           /* whether the process that trains is killed alone, if it is the one that writes */
    int32_t killer;                /* the process that wrote; 0 while there was no kill */
    char below[PATH_BYTES];        /* an absolute path */
    char what[WHAT_BYTES];         /* which call was hit, and how much of it was done */
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("KILL_AT_BYTE");
    long file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (mapped != MAP_FAILED)
        control = mapped;
}

/* Whether an absolute path lies below the directory; the directory itself does not. */
static int is_below(const char *path)
{
    size_t length = strlen(control->below);
    return strncmp(path, control->below, length) == 0 && path[length] == '/';
}

static int path_of_file(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = syscall(SYS_readlink, link, path, PATH_BYTES - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int path_of_name(int directory, const char *name, char *path)
{
    if (name == NULL || strlen(name) >= PATH_BYTES)
        return 0;
    if (name[0] == '/')
        return strcpy(path, name) != NULL;
    if (directory == AT_FDCWD ? syscall(SYS_getcwd, path, PATH_BYTES) <= 0 : !path_of_file(directory, path))
        return 0;
    size_t length = strlen(path);
    return snprintf(path + length, PATH_BYTES - length, "/%s", name) < (int)(PATH_BYTES - length);
}

/* Counts bytes; returns how many of them are written before the kill, or -1 where no kill comes with them. */
static int64_t count(int64_t bytes)
{
    __atomic_add_fetch(&control->counted, bytes, __ATOMIC_SEQ_CST);
    int64_t left = __atomic_load_n(&control->left, __ATOMIC_SEQ_CST);
    do {
        if (left <= 0 || bytes <= 0)
            return -1;
    } while (!__atomic_compare_exchange_n(&control->left, &left, left > bytes ? left - bytes : 0, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    /* As much as nothing, never all: when all of it is written is when nothing of the next one is. */
    return left > bytes ? -1 : left - 1;
}

__attribute__((noreturn)) static void die(const char *call, const char *path, int64_t done, int64_t bytes)
{
    snprintf(control->what, sizeof control->what, "%s %lld/%lld %s", call, (long long)done, (long long)bytes,
             path + strlen(control->below) + 1);
    pid_t self = getpid(), leader = getsid(0);
    __atomic_store_n(&control->killer, self, __ATOMIC_SEQ_CST);
    /* The process that trains is the child of the one that was started, which leads the session. */
    if (!control->only_writer || (self != leader && getppid() != leader))
        kill(-leader, SIGKILL);
    for (;;)
        kill(self, SIGKILL);
}

/* Counts what a call is about to write to an open file; returns as `count`. */
static int64_t count_file(int file, int64_t bytes, char *path)
{
    int before = errno;
    int64_t part = control && path_of_file(file, path) && is_below(path) ? count(bytes) : -1;
    errno = before;
    return part;
}

static int64_t bytes_of(const struct iovec *parts, int number)
{
    int64_t sum = 0;
    for (int i = 0; i < number; i++)
        sum += parts[i].iov_len;
    return sum;
}

/* Writes the first bytes; at the file's own offset where `offset` is -1. */
static int64_t write_first(int file, const struct iovec *parts, int number, int64_t bytes, int64_t offset)
{
    int64_t done = 0;
    for (int i = 0; i < number && done < bytes; i++) {
        size_t wanted = parts[i].iov_len;
        if ((int64_t)wanted > bytes - done)
            wanted = bytes - done;
        long written = offset < 0 ? syscall(SYS_write, file, parts[i].iov_base, wanted)
                                  : syscall(SYS_pwrite64, file, parts[i].iov_base, wanted, offset + done);
        if (written <= 0)
            break;
        done += written;
    }
    return done;
}

static void before_write(const char *call, int file, const struct iovec *parts, int number, int64_t offset)
{
    char path[PATH_BYTES];
    int64_t bytes = bytes_of(parts, number);
    int64_t part = count_file(file, bytes, path);
    if (part >= 0)
        die(call, path, write_first(file, parts, number, part, offset), bytes);
}

EXPORTED ssize_t write(int file, const void *bytes, size_t size)
{
    struct iovec part = {(void *)bytes, size};
    before_write("write", file, &part, 1, -1);
    return syscall(SYS_write, file, bytes, size);
}

EXPORTED ssize_t writev(int file, const struct iovec *parts, int number)
{
    before_write("writev", file, parts, number, -1);
    return syscall(SYS_writev, file, parts, number);
}

EXPORTED ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t offset)
{
    struct iovec part = {(void *)bytes, size};
    before_write("pwrite", file, &part, 1, offset);
    return syscall(SYS_pwrite64, file, bytes, size, offset);
}

EXPORTED ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset)
{
    return pwrite64(file, bytes, size, offset);
}

EXPORTED ssize_t pwritev64(int file, const struct iovec *parts, int number, off64_t offset)
{
    before_write("pwritev", file, parts, number, offset);
    return syscall(SYS_pwritev, file, parts, number, offset, 0);
}

EXPORTED ssize_t pwritev(int file, const struct iovec *parts, int number, off_t offset)
{
    return pwritev64(file, parts, number, offset);
}

/* What a call will copy at most: as much as there is. */
static int64_t to_copy(int from, const off64_t *offset, size_t size)
{
    struct stat stat;
    int64_t begin = offset ? *offset : syscall(SYS_lseek, from, 0, SEEK_CUR);
    if (fstat(from, &stat) != 0 || begin < 0 || begin >= stat.st_size)
        return 0;
    return (int64_t)size < stat.st_size - begin ? (int64_t)size : stat.st_size - begin;
}

EXPORTED ssize_t sendfile64(int to, int from, off64_t *offset, size_t size)
{
    char path[PATH_BYTES];
    int64_t bytes = to_copy(from, offset, size);
    int64_t part = count_file(to, bytes, path);
    if (part >= 0)
        die("sendfile", path, syscall(SYS_sendfile, to, from, offset, part), bytes);
    return syscall(SYS_sendfile, to, from, offset, size);
}

EXPORTED ssize_t sendfile(int to, int from, off_t *offset, size_t size)
{
    return sendfile64(to, from, offset, size);
}

EXPORTED ssize_t copy_file_range(int from, off64_t *offset, int to, off64_t *to_offset, size_t size, unsigned flags)
{
    char path[PATH_BYTES];
    int64_t bytes = to_copy(from, offset, size);
    int64_t part = count_file(to, bytes, path);
    if (part >= 0)
        die("copy_file_range", path, syscall(SYS_copy_file_range, from, offset, to, to_offset, part, flags), bytes);
    return syscall(SYS_copy_file_range, from, offset, to, to_offset, size, flags);
}

/* Makes a call that cannot be torn, where one of the two paths it changes lies below the directory and a kill comes
 * with it: before or after it. */
static long whole(const char *name, const char *one, const char *other, long call, long a, long b, long c, long d, long e)
{
    int64_t part = -1;
    if (control && (one || other)) {
        const char *below = one && is_below(one) ? one : other && is_below(other) ? other : NULL;
        part = below ? count(OPERATION_BYTES) : -1;
        if (part >= 0 && part < OPERATION_BYTES / 2)
            die(name, below, 0, 1);
        if (part >= 0) {
            syscall(call, a, b, c, d, e);
            die(name, below, 1, 1);
        }
    }
    return syscall(call, a, b, c, d, e);
}

EXPORTED int ftruncate64(int file, off64_t size)
{
    char path[PATH_BYTES];
    int is_known = control && path_of_file(file, path);
    return whole("ftruncate", is_known ? path : NULL, NULL, SYS_ftruncate, file, size, 0, 0, 0);
}

EXPORTED int ftruncate(int file, off_t size)
{
    return ftruncate64(file, size);
}

/* The calls that change a name, or two. */
static int change_names(const char *call, int from, const char *old, int to, const char *new, long number, long a, long b,
                        long c, long d, long e)
{
    char one[PATH_BYTES], other[PATH_BYTES];
    int before = errno;
    int has_one = control && old && path_of_name(from, old, one);
    int has_other = control && new && path_of_name(to, new, other);
    errno = before;
    return whole(call, has_one ? one : NULL, has_other ? other : NULL, number, a, b, c, d, e);
}

EXPORTED int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    return change_names("rename", from, old, to, new, SYS_renameat2, from, (long)old, to, (long)new, flags);
}

EXPORTED int renameat(int from, const char *old, int to, const char *new)
{
    return renameat2(from, old, to, new, 0);
}

EXPORTED int rename(const char *old, const char *new)
{
    return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0);
}

EXPORTED int linkat(int from, const char *old, int to, const char *new, int flags)
{
    return change_names("link", from, NULL, to, new, SYS_linkat, from, (long)old, to, (long)new, flags);
}

EXPORTED int link(const char *old, const char *new)
{
    return linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
}

EXPORTED int symlinkat(const char *target, int to, const char *new)
{
    return change_names("symlink", 0, NULL, to, new, SYS_symlinkat, (long)target, to, (long)new, 0, 0);
}

EXPORTED int symlink(const char *target, const char *new)
{
    return symlinkat(target, AT_FDCWD, new);
}

EXPORTED int unlinkat(int directory, const char *name, int flags)
{
    return change_names("unlink", directory, name, 0, NULL, SYS_unlinkat, directory, (long)name, flags, 0, 0);
}

EXPORTED int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

EXPORTED int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

EXPORTED int mkdirat(int directory, const char *name, mode_t mode)
{
    return change_names("mkdir", directory, name, 0, NULL, SYS_mkdirat, directory, (long)name, mode, 0, 0);
}

EXPORTED int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}
