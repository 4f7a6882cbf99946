// SPDX-License-Identifier: Apache-2.0
//
// Faults in which the dispatch thread waits for another process: for the answer of a server, for the batches of a
// producer. And no fault: a server that waits for its client.
#define _GNU_SOURCE
#include "scenario.h"

#include "scenario_protocol.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int input;

static NOINLINE void read_batch(struct dispatcher *dispatcher, uint64_t ns)
{
    static char batch[BATCH_BYTES];

    (void)dispatcher, (void)ns;
    for (size_t done = 0; done < sizeof(batch);) {
        char *rest = batch + done;
        ssize_t got = read(input, rest, sizeof(batch) - done); // victim: slow-pipe slow-worker-io slow-peer idle-server

        if (got <= 0)
            fail("the peer has gone");
        done += got;
    }
}

// The producer opens the other end before anything goes.
static void prepare_fifo(void)
{
    if (!options.fifo || mkfifo(options.fifo, 0600) != 0)
        fail("cannot make a pipe where --fifo says");
    input = open(options.fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (input < 0 || fcntl(input, F_SETFL, 0) != 0)
        fail("cannot open the pipe");
}

static void forget_fifo(void)
{
    unlink(options.fifo);
}

const struct fault slow_pipe = {.name = "slow-pipe",
                                .may_spin = true,
                                .draw = draw_one_piece,
                                .prepare = prepare_fifo,
                                .begin = forget_fifo,
                                .hit = read_batch};

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void prepare_connection(void)
{
    struct sockaddr_in server = loopback(options.port);
    int no_delay = 1;

    input = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (input < 0 || connect(input, (struct sockaddr *)&server, sizeof(server)) != 0)
        fail("cannot reach the server at --port");
    setsockopt(input, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
}

// The request says how long the answer should take.
static NOINLINE void ask_server(struct dispatcher *dispatcher, uint64_t ns)
{
    uint64_t delay_ns = options.healthy ? 0 : ns;

    if (write(input, &delay_ns, sizeof(delay_ns)) != sizeof(delay_ns))
        fail("cannot ask the server");
    read_batch(dispatcher, ns); // victim: slow-peer
}

const struct fault slow_peer = {
    .name = "slow-peer", .may_spin = true, .prepare = prepare_connection, .hit = ask_server};

// A server whose client has nothing to ask for most of the time.

static int listener;

static void prepare_listener(void)
{
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof(address);

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        fail("cannot listen on the loopback interface");
    snprintf(ready_words, sizeof(ready_words), " port=%d", ntohs(address.sin_port));
}

static void accept_client(void)
{
    int no_delay = 1;

    input = accept(listener, NULL, NULL);
    if (input < 0)
        fail("no client connects");
    setsockopt(input, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
}

static void answer_client(struct dispatcher *dispatcher)
{
    if (write(input, &dispatcher->steps, sizeof(dispatcher->steps)) != sizeof(dispatcher->steps))
        fail("cannot answer the client");
}

const struct fault idle_server = {.name = "idle-server",
                                  .may_spin = true,
                                  .draw = draw_one_piece,
                                  .prepare = prepare_listener,
                                  .begin = accept_client,
                                  .hit = read_batch,
                                  .end_step = answer_client};
