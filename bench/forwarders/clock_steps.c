// Steps CLOCK_REALTIME for one program (LD_PRELOAD), because the clock itself is the machine's.
//
// The file that SOAK_CLOCK names is shared with the program that steps the clock (soak.py). It consists of
// numbers of 64 bits: how many steps there are, how many readings of the clock and how many stamps were
// shifted, and for each step its time, in true nanoseconds, and the sum of the steps up to it. Each reading,
// and each stamp that the kernel made, is shifted by the steps before it.
//
// Receive rings are refused, so that the kernel's stamps come with messages: in a ring, the kernel writes
// them into memory that the program reads without a call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LENGTH (1 << 20)
#define SECOND 1000000000LL

struct shared {
    int64_t count;
    int64_t readings;
    int64_t stamps;
    struct {
        int64_t at;
        int64_t sum;
    } steps[];
};

static struct shared *shared;
static int (*true_gettime)(clockid_t, struct timespec *);
static int (*true_receive)(int, struct mmsghdr *, unsigned int, int, struct timespec *);
static int (*true_set)(int, int, int, const void *, socklen_t);

__attribute__((constructor)) static void start(void)
{
    if (true_gettime != NULL)
        return;
    true_receive = (typeof(true_receive))dlsym(RTLD_NEXT, "recvmmsg");
    true_set = (typeof(true_set))dlsym(RTLD_NEXT, "setsockopt");
    true_gettime = (typeof(true_gettime))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("SOAK_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        perror("clock_steps: the file that SOAK_CLOCK names");
        abort();
    }
    close(file);
    shared = map;
}

// Shifts a time by the steps before it. Returns whether there are any.
static int shift(struct timespec *time)
{
    int64_t read = time->tv_sec * SECOND + time->tv_nsec;
    for (int64_t n = __atomic_load_n(&shared->count, __ATOMIC_ACQUIRE); n > 0; n--) {
        if (shared->steps[n - 1].at > read)
            continue;
        int64_t shown = read + shared->steps[n - 1].sum;
        time->tv_sec = shown / SECOND;
        time->tv_nsec = shown % SECOND;
        return 1;
    }
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *to)
{
    start();
    int result = true_gettime(clock, to);
    if (result == 0 && clock == CLOCK_REALTIME && shift(to))
        __atomic_fetch_add(&shared->readings, 1, __ATOMIC_RELAXED);
    return result;
}

int recvmmsg(int socket, struct mmsghdr *messages, unsigned int most, int flags, struct timespec *patience)
{
    start();
    int count = true_receive(socket, messages, most, flags, patience);
    for (int n = 0; n < count; n++) {
        struct msghdr *header = &messages[n].msg_hdr;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
            // `struct scm_timestamping`: the kernel's own stamp is the first of three.
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPING
                && shift((struct timespec *)CMSG_DATA(c)))
                __atomic_fetch_add(&shared->stamps, 1, __ATOMIC_RELAXED);
        }
    }
    return count;
}

int setsockopt(int socket, int level, int name, const void *value, socklen_t length)
{
    start();
    if (level == SOL_PACKET && name == PACKET_RX_RING) {
        errno = ENOMEM;
        return -1;
    }
    return true_set(socket, level, name, value, length);
}
