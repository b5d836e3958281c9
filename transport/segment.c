/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c - named segments in /dev/shm: open, create, replace, remove.
 * A segment is filled, judged dead and removed under the file's lock (flock). The kernel drops a dead process's lock,
 * so the next process completes what a killed creator left. A process that waited for the lock starts over if the file
 * has lost its name, so none removes another's segment.
 * A joiner is dead if its process is; in another pid namespace, if the lock on its slot's byte is free (an open-file
 * lock: a forked child may hold it longer, and each thread has its own). A joiner takes that lock under the file's,
 * before its slot counts, so no living joiner is judged dead.
 * Another owner or mode than 0600 is refused, except for rights that a umask removed. The owner is checked before
 * opening: another user's lease can delay an open by 45 s. */
#define _GNU_SOURCE
#include "transport/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "transport/descriptor_box.h"
#include "transport/reserve.h"

/* Ranks of a process share one mapping: it saves memory, and the thread sanitizer can match stores with loads. */
typedef struct mapped {
    struct mapped *next;
    dev_t device;
    ino_t inode; /* not reused while mapped */
    net_segment_t *segment;
    uint32_t references;
} mapped_t;

static net_lock_t mapped_lock = NET_LOCK_INITIALIZER;
static mapped_t *mapped_list;

/* where shm_open of glibc and musl puts files */
#define SEGMENT_FOLDER "/dev/shm"

enum {
    OPEN_ATTEMPTS = 64, /* one fails when another process replaces the segment */
    LOCK_NAPS = 10000,  /* of 1 ms; the lock is held for microseconds */
    SWEEP_ENTRIES = 1024,
    SWEEP_BOX_SECONDS = 60
};

static void prefix_text(char prefix[SEGMENT_NAME_BYTES])
{
    snprintf(prefix, SEGMENT_NAME_BYTES, "/shunt-%lu-", (unsigned long)geteuid());
}

static void name_text(const net_key_t *key, char name[SEGMENT_NAME_BYTES])
{
    const net_key_t shown = net_key_name(key);
    snprintf(name, SEGMENT_NAME_BYTES, "/shunt-%lu-%016" PRIx64 "%016" PRIx64, (unsigned long)geteuid(), shown.word[0],
             shown.word[1]);
}

static int lock_file(int fd)
{
    for (int naps = 0; naps < LOCK_NAPS; naps++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return -ETIMEDOUT;
}

/* Does not open the file. */
static int look_at(const char *name, struct stat *info)
{
    char path[sizeof SEGMENT_FOLDER + SEGMENT_NAME_BYTES];
    snprintf(path, sizeof path, SEGMENT_FOLDER "%s", name);
    return lstat(path, info) == 0 ? 0 : -errno;
}

static bool name_means(const char *name, dev_t device, ino_t inode)
{
    struct stat info;
    return look_at(name, &info) == 0 && info.st_dev == device && info.st_ino == inode;
}

static int check_owner(const struct stat *info)
{
    if (!S_ISREG(info->st_mode) || info->st_uid != geteuid() || (info->st_mode & 077) != 0)
        return -EPERM;
    if (info->st_size != 0 && info->st_size != (off_t)sizeof(net_segment_t))
        return -EPROTO;
    return 0;
}

/* The segment is new, or its creator died early: relevant bytes are zero. */
static int fill(net_segment_t *segment)
{
    if (getrandom(&segment->place, sizeof segment->place, 0) != (ssize_t)sizeof segment->place)
        return -EIO;
    segment->version = SEGMENT_VERSION;
    segment->bytes = sizeof *segment;
    atomic_store_explicit(&segment->magic, SEGMENT_MAGIC, memory_order_release);
    return 0;
}

static int check_layout(net_segment_t *segment)
{
    uint64_t magic = atomic_load_explicit(&segment->magic, memory_order_acquire);
    if (magic != SEGMENT_MAGIC || segment->version != SEGMENT_VERSION || segment->bytes != sizeof *segment)
        return -EPROTO;
    return 0;
}

bool net_is_met(const net_key_t *key)
{
    char name[SEGMENT_NAME_BYTES];
    struct stat info;
    name_text(key, name);
    return look_at(name, &info) == 0;
}

bool net_slot_gone(net_slot_t *slot)
{
    if (atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_JOINED)
        return true;
    net_process_t process = slot->process;
    return !net_process_alive(&process);
}

static struct flock life_of(uint32_t slot, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
}

/* In another container the pid is meaningless, but the lock is not. */
static bool joiner_gone(net_segment_t *segment, uint32_t slot, int fd)
{
    struct flock life = life_of(slot, F_WRLCK);
    return net_slot_gone(&segment->slot[slot]) ||
           (segment->slot[slot].kept && fcntl(fd, F_OFD_GETLK, &life) == 0 && life.l_type == F_UNLCK);
}

/* Called with the segment locked. True if decided, or all joiners are gone; a segment without joiners is new. */
static bool finished(net_segment_t *segment, int fd)
{
    if (atomic_load_explicit(&segment->verdict, memory_order_acquire) != NET_PENDING)
        return true;
    uint32_t joined = atomic_load_explicit(&segment->joined, memory_order_acquire);
    if (joined == 0)
        return false;
    for (uint32_t i = 0; i < joined && i < NET_MAX_SLOTS; i++)
        if (!joiner_gone(segment, i, fd))
            return false;
    return true;
}

/* Called with mapped_lock held. */
static int map_anew(const net_named_t *named, mapped_t **made)
{
    mapped_t *entry = malloc(sizeof *entry);
    if (!entry)
        return -ENOMEM;
    void *at = mmap(NULL, sizeof(net_segment_t), PROT_READ | PROT_WRITE, MAP_SHARED, named->fd, 0);
    if (at == MAP_FAILED) {
        free(entry);
        return -errno;
    }
    *entry = (mapped_t){.next = mapped_list, .device = named->device, .inode = named->inode, .segment = at};
    mapped_list = entry;
    *made = entry;
    return 0;
}

static int map_segment(net_named_t *named)
{
    int error = 0;
    net_lock_take(&mapped_lock);
    mapped_t *entry = mapped_list;
    while (entry && (entry->device != named->device || entry->inode != named->inode))
        entry = entry->next;
    if (!entry)
        error = map_anew(named, &entry);
    if (!error) {
        entry->references++;
        named->segment = entry->segment;
    }
    net_lock_give(&mapped_lock);
    return error;
}

void net_segment_unmap(net_named_t *named)
{
    net_lock_take(&mapped_lock);
    mapped_t **at = &mapped_list;
    while ((*at)->segment != named->segment)
        at = &(*at)->next;
    mapped_t *entry = *at;
    if (--entry->references == 0) {
        *at = entry->next;
        munmap(entry->segment, sizeof *entry->segment);
        free(entry);
    }
    net_lock_give(&mapped_lock);
    named->segment = NULL;
}

/* A file that appears after the check can neither block the open (O_NONBLOCK) nor be a link (shm_open follows none). */
static int open_file(const char *name, int flags)
{
    struct stat info;
    if (look_at(name, &info) == 0 && info.st_uid != geteuid())
        return -EPERM;
    int fd = net_descriptor(shm_open(name, O_RDWR | O_NONBLOCK | flags, 0600));
    return fd >= 0 ? fd : -errno;
}

/* Called with the file locked. 0: mapped and free to join; -EAGAIN: finished. */
static int adopt(net_named_t *named, const struct stat *info)
{
    int error = check_owner(info);
    if (error)
        return error;
    if (info->st_size == 0 && (error = net_reserve(named->fd, sizeof(net_segment_t))) != 0) {
        shm_unlink(named->name);
        return error;
    }
    error = map_segment(named);
    if (error)
        return error;
    if (atomic_load_explicit(&named->segment->magic, memory_order_acquire) == 0)
        error = fill(named->segment);
    if (!error)
        error = check_layout(named->segment);
    if (!error && finished(named->segment, named->fd)) {
        shm_unlink(named->name);
        error = -EAGAIN;
    }
    if (error)
        net_segment_unmap(named);
    return error;
}

/* Restores the owner's rights that a umask removed; true if the owner has them. By descriptor: the name may be another
 * file's by now. O_PATH descriptors change rights through /proc. */
static bool give_rights(int fd)
{
    struct stat info;
    char path[32];
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return (info.st_mode & 0600) == 0600 || fchmod(fd, 0600) == 0 || (errno == EBADF && chmod(path, 0600) == 0);
}

/* By name, for a file that cannot be opened without these rights. */
static bool give_rights_to(const char *name)
{
    char path[sizeof SEGMENT_FOLDER + SEGMENT_NAME_BYTES];
    snprintf(path, sizeof path, SEGMENT_FOLDER "%s", name);
    const int fd = net_descriptor(open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    const bool given = fd >= 0 && give_rights(fd);
    if (fd >= 0)
        close(fd);
    return given;
}

static int try_open(net_named_t *named)
{
    struct stat info;
    named->fd = open_file(named->name, O_CREAT);
    if (named->fd < 0)
        return named->fd;
    int error = lock_file(named->fd);
    if (error) {
        close(named->fd);
        named->fd = -1;
        return error;
    }
    if (fstat(named->fd, &info) != 0) {
        error = -errno;
        goto unlock;
    }
    give_rights(named->fd);
    named->device = info.st_dev;
    named->inode = info.st_ino;
    if (!name_means(named->name, named->device, named->inode)) {
        error = -EAGAIN;
        goto unlock;
    }
    error = adopt(named, &info);
    if (!error)
        return 0;
unlock:
    net_segment_unlock(named);
    return error;
}

int net_segment_open(const net_key_t *key, net_named_t *named)
{
    *named = (net_named_t){.fd = -1, .life = -1};
    name_text(key, named->name);
    int error = -EAGAIN;
    for (int attempt = 0; attempt < OPEN_ATTEMPTS && error == -EAGAIN; attempt++) {
        error = try_open(named);
        if ((error == -EPERM || error == -EACCES) && give_rights_to(named->name))
            error = -EAGAIN;
    }
    return error;
}

int net_segment_lock(net_named_t *named)
{
    struct stat info;
    int fd = open_file(named->name, 0);
    if (fd < 0)
        return fd;
    int error = fstat(fd, &info) == 0 ? 0 : -errno;
    if (!error && (info.st_dev != named->device || info.st_ino != named->inode))
        error = -ENOENT;
    if (!error)
        error = lock_file(fd);
    if (error) {
        close(fd);
        return error;
    }
    named->fd = fd;
    if (name_means(named->name, named->device, named->inode))
        return 0;
    net_segment_unlock(named);
    return -ENOENT;
}

void net_segment_remove(const net_named_t *named)
{
    shm_unlink(named->name);
}

void net_segment_unlock(net_named_t *named)
{
    /* explicitly: a process forked meanwhile shares the open file */
    flock(named->fd, LOCK_UN);
    close(named->fd);
    named->fd = -1;
}

bool net_segment_keep(net_named_t *named, uint32_t slot)
{
    struct flock life = life_of(slot, F_WRLCK);
    named->life = net_descriptor(fcntl(named->fd, F_DUPFD_CLOEXEC, 0));
    if (named->life >= 0 && fcntl(named->life, F_OFD_SETLK, &life) == 0)
        return true;
    net_segment_release(named, false);
    return false;
}

void net_segment_release(net_named_t *named, bool own)
{
    if (named->life < 0)
        return;
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (own)
        fcntl(named->life, F_OFD_SETLK, &all);
    close(named->life);
    named->life = -1;
}

/* Keeps a locked segment: it is in use. */
static void sweep_one(const char *name)
{
    struct stat info;
    int fd = open_file(name, 0);
    if (fd < 0)
        return;
    if (fstat(fd, &info) != 0 || check_owner(&info) != 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
        goto close;
    if (fstat(fd, &info) != 0 || !name_means(name, info.st_dev, info.st_ino))
        goto unlock;
    if (info.st_size == 0) {
        shm_unlink(name);
        goto unlock;
    }
    net_segment_t *segment = mmap(NULL, sizeof *segment, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (segment == MAP_FAILED)
        goto unlock;
    /* A creator joins under the lock, so a segment without joiners has a dead creator. */
    if (atomic_load_explicit(&segment->magic, memory_order_acquire) == 0 ||
        (check_layout(segment) == 0 && (atomic_load(&segment->joined) == 0 || finished(segment, fd))))
        shm_unlink(name);
    munmap(segment, sizeof *segment);
unlock:
    flock(fd, LOCK_UN);
close:
    close(fd);
}

static void sweep_name(const char *name)
{
    char path[sizeof SEGMENT_FOLDER + SEGMENT_NAME_BYTES];
    snprintf(path, sizeof path, SEGMENT_FOLDER "%s", name);
    sweep_one(name);
    net_box_sweep(path, SWEEP_BOX_SECONDS);
}

void net_segment_sweep(void)
{
    char prefix[SEGMENT_NAME_BYTES], name[SEGMENT_NAME_BYTES];
    struct stat info;
    prefix_text(prefix);
    DIR *folder = opendir(SEGMENT_FOLDER);
    if (!folder)
        return;
    struct dirent *entry;
    for (int seen = 0; seen < SWEEP_ENTRIES && (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, prefix + 1, strlen(prefix + 1)) != 0 || strlen(entry->d_name) + 2 > sizeof name)
            continue;
        snprintf(name, sizeof name, "/%.*s", (int)sizeof name - 2, entry->d_name);
        if (look_at(name, &info) != 0 || info.st_uid != geteuid())
            continue; /* any user may make files with this prefix */
        sweep_name(name);
        seen++;
    }
    closedir(folder);
}
