/* Faults between a process and its disks: preloaded, it looks at the calls that write, sync, read and allocate.
 *
 * FAULTS names a file of rules, one per line, read again whenever it changes:
 *
 *     OPERATION  PATH-PART  SKIP  COUNT  ACTION  [NUMBER]
 *
 * OPERATION: write | sync | read | allocate. PATH-PART: what the path of the open file contains ("*": any).
 * SKIP: so many matching calls go by first; COUNT: so many are hit then (-1: all further ones).
 * ACTION: eio | enospc | erofs    the call fails, nothing is done
 *         slow NUMBER            waits so many milliseconds, then does it
 *         lie                    a sync says it is done and does nothing
 *         short                  writes half and says so
 *         torn                   writes half, then the process dies at once
 *         die                    the process dies at once, before the call
 *         share NUMBER           as on a disk that does so many bytes a second: calls on files with one PATH-PART wait
 *                                for each other's bytes, a sync for those before it
 *         flip NUMBER            a read finds the lowest bit of its byte NUMBER changed
 *
 * The first rule that hits decides. Counters are those of the process, and start anew when the file changes.
 * Each hit is a line of the file FAULTS.hits: the rule's operation and action, and the path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RULES_MAX 16

struct rule {
    char operation[16];
    char part[256];
    char action[16];
    long skip, count, number;
    long seen;
};

/* A disk of limited throughput, by the first rule that names its path. */
struct disk {
    char part[256];
    double free_at; /* when what was asked for until now is done, in seconds */
};

static struct disk disks[RULES_MAX];
static int disk_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rule_count;
static struct timespec read_at;
static off_t read_size = -1;

/* The rules are read by bare system calls, so that reading them meets no rule. */
static void load_rules(void)
{
    const char *path = getenv("FAULTS");
    struct stat found;
    if (path == NULL || stat(path, &found) != 0) {
        rule_count = 0;
        read_size = -1;
        return;
    }
    if (found.st_size == read_size && found.st_mtim.tv_sec == read_at.tv_sec
        && found.st_mtim.tv_nsec == read_at.tv_nsec)
        return;
    char text[8192];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    long size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (size < 0)
        return;
    text[size] = 0;
    read_at = found.st_mtim;
    read_size = found.st_size;
    rule_count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        struct rule one;
        memset(&one, 0, sizeof one);
        int fields = sscanf(line, "%15s %255s %ld %ld %15s %ld", one.operation, one.part, &one.skip, &one.count,
                            one.action, &one.number);
        if (fields >= 5 && rule_count < RULES_MAX)
            rules[rule_count++] = one;
    }
}

/* Bare system calls here too: they meet no rule. */
static void note_hit(const struct rule *rule, const char *path)
{
    char file[4096], line[4200];
    snprintf(file, sizeof file, "%s.hits", getenv("FAULTS"));
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    int size = snprintf(line, sizeof line, "%s %s %s\n", rule->operation, rule->action, path);
    if (syscall(SYS_write, fd, line, size) != size)
        fprintf(stderr, "a hit could not be noted\n");
    syscall(SYS_close, fd);
}

/* Whether a rule hits this call; a copy of the rule is left in `hit`. */
static int hits(const char *operation, int fd, struct rule *hit)
{
    char link[64], path[4096];
    int found = 0;
    int before = errno;
    pthread_mutex_lock(&lock);
    load_rules();
    if (rule_count > 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, path, sizeof path - 1);
        path[size < 0 ? 0 : size] = 0;
        for (int i = 0; i < rule_count && !found && size > 0 && path[0] == '/'; i++) {
            struct rule *rule = &rules[i];
            if (strcmp(rule->operation, operation) != 0)
                continue;
            if (strcmp(rule->part, "*") != 0 && strstr(path, rule->part) == NULL)
                continue;
            long seen = rule->seen++;
            if (seen >= rule->skip && (rule->count < 0 || seen < rule->skip + rule->count)) {
                *hit = *rule;
                found = 1;
                if (strcmp(rule->action, "share") != 0) /* each call of the disk is one */
                    note_hit(rule, path);
            }
        }
    }
    pthread_mutex_unlock(&lock);
    errno = before;
    return found;
}

/* What all operations have in common. Returns the error number to fail with, or 0 to go on. */
static int obey(const struct rule *rule)
{
    if (strcmp(rule->action, "eio") == 0)
        return EIO;
    if (strcmp(rule->action, "enospc") == 0)
        return ENOSPC;
    if (strcmp(rule->action, "erofs") == 0)
        return EROFS;
    if (strcmp(rule->action, "die") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(rule->action, "slow") == 0) {
        struct timespec time = {rule->number / 1000, (rule->number % 1000) * 1000000L};
        nanosleep(&time, NULL);
    }
    return 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Wait until a disk that does rule->number bytes a second is done with these, after all that came before. */
static void take_turn(const struct rule *rule, size_t bytes)
{
    double end, left;
    int i = 0;
    if (strcmp(rule->action, "share") != 0)
        return;
    pthread_mutex_lock(&lock);
    while (i < disk_count && strcmp(disks[i].part, rule->part) != 0)
        i++;
    if (i == disk_count && disk_count < RULES_MAX)
        strcpy(disks[disk_count++].part, rule->part);
    end = (disks[i].free_at > now() ? disks[i].free_at : now()) + (double)bytes / (double)rule->number;
    disks[i].free_at = end;
    pthread_mutex_unlock(&lock);
    while ((left = end - now()) > 0) {
        struct timespec time = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&time, NULL);
    }
}

static size_t bytes_of(const struct iovec *parts, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].iov_len;
    return total;
}

static void *next_of(const char *name, void **kept)
{
    if (*kept == NULL)
        *kept = dlsym(RTLD_NEXT, name);
    return *kept;
}

static int partly(const struct rule *rule)
{
    return strcmp(rule->action, "short") == 0 || strcmp(rule->action, "torn") == 0;
}

/* Write the first half of all buffers, one byte at least. */
static ssize_t write_half(const struct rule *rule, int fd, const struct iovec *parts, int count, off_t offset)
{
    size_t total = bytes_of(parts, count), left, done = 0;
    left = total / 2 > 0 ? total / 2 : total;
    for (int i = 0; i < count && left > 0; i++) {
        size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
        long written = syscall(SYS_pwrite64, fd, parts[i].iov_base, size, offset + (off_t)done);
        if (written < 0)
            return -1;
        done += (size_t)written;
        left -= size;
    }
    if (strcmp(rule->action, "torn") == 0)
        kill(getpid(), SIGKILL);
    return (ssize_t)done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    static void *kept;
    ssize_t (*next)(int, const void *, size_t, off64_t) = next_of("pwrite64", &kept);
    struct rule rule;
    if (hits("write", fd, &rule)) {
        struct iovec part = {(void *)data, size};
        if (partly(&rule))
            return write_half(&rule, fd, &part, 1, offset);
        take_turn(&rule, size);
        int error = obey(&rule);
        if (error != 0) {
            errno = error;
            return -1;
        }
    }
    return next(fd, data, size, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    static void *kept;
    ssize_t (*next)(int, const struct iovec *, int, off64_t, int) = next_of("pwritev64v2", &kept);
    struct rule rule;
    if (hits("write", fd, &rule)) {
        if (partly(&rule))
            return write_half(&rule, fd, parts, count, offset);
        take_turn(&rule, bytes_of(parts, count));
        int error = obey(&rule);
        if (error != 0) {
            errno = error;
            return -1;
        }
    }
    return next(fd, parts, count, offset, flags);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    return pwritev64v2(fd, parts, count, offset, 0);
}

static int sync_by(const char *name, void **kept, int fd)
{
    int (*next)(int) = next_of(name, kept);
    struct rule rule;
    if (hits("sync", fd, &rule)) {
        if (strcmp(rule.action, "lie") == 0)
            return 0;
        take_turn(&rule, 0);
        int error = obey(&rule);
        if (error != 0) {
            errno = error;
            return -1;
        }
    }
    return next(fd);
}

int fsync(int fd)
{
    static void *kept;
    return sync_by("fsync", &kept, fd);
}

int fdatasync(int fd)
{
    static void *kept;
    return sync_by("fdatasync", &kept, fd);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    static void *kept;
    ssize_t (*next)(int, void *, size_t, off64_t) = next_of("pread64", &kept);
    struct rule rule;
    int hit = hits("read", fd, &rule);
    if (hit) {
        take_turn(&rule, size);
        int error = obey(&rule);
        if (error != 0) {
            errno = error;
            return -1;
        }
    }
    ssize_t got = next(fd, data, size, offset);
    if (hit && strcmp(rule.action, "flip") == 0 && rule.number >= 0 && got > rule.number)
        ((unsigned char *)data)[rule.number] ^= 1;
    return got;
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    static void *kept;
    int (*next)(int, off64_t, off64_t) = next_of("posix_fallocate64", &kept);
    struct rule rule;
    if (hits("allocate", fd, &rule)) {
        int error = obey(&rule);
        if (error != 0)
            return error;
    }
    return next(fd, offset, size);
}
