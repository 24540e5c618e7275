/* A disk that fails under a process: preloaded, this stands between the process and the system's calls that write files or
   force them to the disk. What is to fail stands in a file that the test and all of the process's children share.

   It also keeps what a power failure would leave, in the folder TEST_DISK_PLATTER: a file has there the content of its last
   flush that succeeded, by inode and under the name that it had; a flushed folder has its folders, and its flushed files
   under their present names. What was never flushed is not there. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct order {
    int64_t error;   /* errno of what fails; 0: nothing does */
    int64_t flushes; /* 1: flushes fail; 0: writes do */
    int64_t after;   /* so many calls get through first */
    int64_t times;   /* so many fail then */
    int64_t failed;  /* so many have */
    int64_t seen;    /* calls of either kind, since the test set it to 0 */
};

static struct order *order;
static const char *platter;

__attribute__((constructor)) static void set_up(void) {
    const char *path = getenv("TEST_DISK_ORDER");
    int handle = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = MAP_FAILED;
    if (handle >= 0) {
        memory = mmap(NULL, sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
        close(handle);
    }
    order = memory == MAP_FAILED ? NULL : memory;
    platter = getenv("TEST_DISK_PLATTER");
}

static int on_disk(int handle) {
    struct stat found;
    return fstat(handle, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

/* Whether this call fails. */
static int fails(int handle, int flush) {
    if (!order || order->error == 0 || order->flushes != flush || !on_disk(handle))
        return 0;
    __atomic_add_fetch(&order->seen, 1, __ATOMIC_SEQ_CST);
    if (__atomic_sub_fetch(&order->after, 1, __ATOMIC_SEQ_CST) >= 0)
        return 0;
    if (__atomic_sub_fetch(&order->times, 1, __ATOMIC_SEQ_CST) < 0)
        return 0;
    __atomic_add_fetch(&order->failed, 1, __ATOMIC_SEQ_CST);
    errno = (int)order->error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void make_folders(char *path) {
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* Both names are the same bytes from now on; whatever the second one was before. */
static void give_name(const char *there, char *name) {
    char fresh[PATH_MAX];
    make_folders(name);
    if ((size_t)snprintf(fresh, sizeof fresh, "%s.%d~", name, getpid()) < sizeof fresh && link(there, fresh) == 0)
        rename(fresh, name);
}

static void keep_file(const struct stat *found, const char *path) {
    char data[65536], inode[PATH_MAX / 2], fresh[PATH_MAX], name[PATH_MAX];
    ssize_t size;
    snprintf(inode, sizeof inode, "%s/inodes/%ju", platter, (uintmax_t)found->st_ino);
    snprintf(fresh, sizeof fresh, "%s.%d~", inode, getpid());
    make_folders(fresh);
    int out = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, found->st_mode & 07777);
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (out < 0 || in < 0)
        abort();
    while ((size = read(in, data, sizeof data)) > 0)
        if (REAL(write)(out, data, (size_t)size) != size)
            abort();
    close(in);
    close(out);
    rename(fresh, inode);
    if ((size_t)snprintf(name, sizeof name, "%s/tree%s", platter, path) < sizeof name)
        give_name(inode, name);
}

static void keep_folder(const char *path) {
    char inode[PATH_MAX / 2], name[PATH_MAX], here[PATH_MAX];
    struct dirent *entry;
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        snprintf(inode, sizeof inode, "%s/inodes/%ju", platter, (uintmax_t)entry->d_ino);
        if (entry->d_type == DT_REG && access(inode, F_OK) == 0 &&
            (size_t)snprintf(name, sizeof name, "%s/tree%s/%s", platter, path, entry->d_name) < sizeof name)
            give_name(inode, name);
        if (entry->d_type == DT_DIR && strcmp(entry->d_name, "..") != 0 &&
            (size_t)snprintf(name, sizeof name, "%s/tree%s/%s/", platter, path, entry->d_name) < sizeof name)
            make_folders(name);
    }
    if (folder)
        closedir(folder);
    snprintf(here, sizeof here, "%s/tree%s", platter, path);
    folder = opendir(here);
    while (folder && (entry = readdir(folder))) {
        if (entry->d_type == DT_REG &&
            (size_t)snprintf(name, sizeof name, "%s/%s", path, entry->d_name) < sizeof name &&
            access(name, F_OK) != 0 &&
            (size_t)snprintf(name, sizeof name, "%s/%s", here, entry->d_name) < sizeof name)
            unlink(name);
    }
    if (folder)
        closedir(folder);
}

/* A flush has succeeded. */
static void keep(int handle) {
    char link_name[64], path[PATH_MAX];
    struct stat found, named;
    int before = errno;
    if (!platter || !on_disk(handle) || fstat(handle, &found) != 0)
        return;
    snprintf(link_name, sizeof link_name, "/proc/self/fd/%d", handle);
    ssize_t size = readlink(link_name, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        if (stat(path, &named) == 0 && named.st_ino == found.st_ino) {
            if (S_ISDIR(found.st_mode))
                keep_folder(path);
            else
                keep_file(&found, path);
        }
    }
    errno = before;
}

static int flush(int handle, int (*real)(int)) {
    if (fails(handle, 1))
        return -1;
    int result = real(handle);
    if (result == 0)
        keep(handle);
    return result;
}

int fsync(int handle) { return flush(handle, REAL(fsync)); }
int fdatasync(int handle) { return flush(handle, REAL(fdatasync)); }

ssize_t write(int handle, const void *data, size_t size) {
    return fails(handle, 0) ? -1 : REAL(write)(handle, data, size);
}
ssize_t pwrite(int handle, const void *data, size_t size, off_t at) {
    return fails(handle, 0) ? -1 : REAL(pwrite)(handle, data, size, at);
}
ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at) {
    return fails(handle, 0) ? -1 : REAL(pwrite64)(handle, data, size, at);
}
