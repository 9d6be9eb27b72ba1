// Forwards every frame between two interfaces over raw sockets, one frame per system call.
// Usage: forward FIRST SECOND THREADS. With one thread, both sockets are polled.

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int sockets[2];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// Opens a socket that receives what arrives at an interface, but not what leaves by it.
static int open_raw(const char *interface) {
    int one = 1, fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    if (fd < 0) fail("socket");
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one)) fail("setsockopt");
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    at.sll_ifindex = if_nametoindex(interface);
    if (!at.sll_ifindex) fail(interface);
    if (bind(fd, (struct sockaddr *)&at, sizeof at)) fail("bind");
    return fd;
}

static void forward_one(int from) {
    char frame[65536];
    ssize_t length = recv(sockets[from], frame, sizeof frame, 0);
    // A full queue of the interface drops the frame, as a router's does.
    if (length > 0) send(sockets[1 - from], frame, length, 0);
}

static void *one_way(void *from) {
    for (;;) forward_one((int)(long)from);
    return NULL;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: forward FIRST SECOND THREADS\n");
        return 2;
    }
    for (int i = 0; i < 2; i++) sockets[i] = open_raw(words[1 + i]);
    if (!strcmp(words[3], "2")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, one_way, (void *)1L)) fail("pthread_create");
        one_way((void *)0L);
    }
    struct pollfd wanted[2] = {{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}};
    for (;;) {
        if (poll(wanted, 2, -1) < 0) fail("poll");
        for (int i = 0; i < 2; i++)
            if (wanted[i].revents & POLLIN) forward_one(i);
    }
}
