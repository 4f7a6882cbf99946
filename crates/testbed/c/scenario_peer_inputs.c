// SPDX-License-Identifier: Apache-2.0
//
// Peers that a victim waits for: producers of batches, a server that it asks, a client that asks it.
#define _GNU_SOURCE
#include "scenario_peer.h"

#include "scenario_protocol.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static const size_t FILE_BYTES = 32 * MIB;
static char batch[BATCH_BYTES];
static int connection, listener, file;

// The victim may go first.
static NOINLINE void write_batch(void)
{
    for (size_t done = 0; done < sizeof(batch);) {
        const char *rest = batch + done;
        ssize_t put = write(connection, rest, sizeof(batch) - done); // blame: slow-pipe slow-worker-io slow-peer

        if (put <= 0)
            exit(0);
        done += put;
    }
}

static void open_fifo(void)
{
    if (!options.fifo || (connection = open(options.fifo, O_WRONLY | O_CLOEXEC)) < 0)
        fail("cannot open the pipe that --fifo names");
    tell_ready("");
}

// A batch takes longer than the victim's step, or a third of it.
static NOINLINE void produce(void (*work)(uint64_t ns))
{
    struct shape shape = draw_shape(options.seed, 0);
    uint64_t random = options.seed;
    uint64_t batch_ns = options.healthy ? shape.gpu_ns / 3 : shape.gpu_ns + shape.fault_ns;

    for (;;) {
        uint64_t ns = batch_ns * draw_between(&random, 0.9, 1.1);

        work(ns);      // blame: slow-pipe slow-worker-io
        write_batch(); // blame: slow-pipe slow-worker-io
    }
}

static void produce_by_burning(void)
{
    produce(burn_ns);
}

const struct role loader = {.name = "loader", .prepare = open_fifo, .run = produce_by_burning};

static NOINLINE void read_for(uint64_t ns)
{
    read_directly(file, FILE_BYTES, ns); // blame: slow-worker-io
}

static void prepare_reading(void)
{
    file = open_scratch_file(FILE_BYTES, true);
    open_fifo();
}

static void produce_by_reading(void)
{
    produce(read_for);
}

const struct role disk_loader = {.name = "disk-loader", .prepare = prepare_reading, .run = produce_by_reading};

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void send_at_once(void)
{
    int no_delay = 1;

    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
}

static void listen_on_any_port(void)
{
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof(address);
    char words[32];

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        fail("cannot listen on the loopback interface");
    snprintf(words, sizeof(words), " port=%d", ntohs(address.sin_port));
    tell_ready(words);
}

// The request says how long the answer should take. The server works for it: one that slept could as well be a client
// of an idle server.
static NOINLINE void answer_late(void)
{
    uint64_t delay_ns;

    connection = accept(listener, NULL, NULL);
    if (connection < 0)
        fail("no one connects");
    send_at_once();
    while (read(connection, &delay_ns, sizeof(delay_ns)) == sizeof(delay_ns)) {
        burn_ns(delay_ns); // blame: slow-peer
        write_batch();     // blame: slow-peer
    }
}

const struct role server = {.name = "server", .prepare = listen_on_any_port, .run = answer_late};

static void connect_to_victim(void)
{
    struct sockaddr_in address = loopback(options.port);

    connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof(address)) != 0)
        fail("cannot connect to --port");
    send_at_once();
    tell_ready("");
}

// Thinks between the answer and the next question, or has the next one ready.
static void ask_now_and_then(void)
{
    struct shape shape = draw_shape(options.seed, 0);
    uint64_t answer, random = options.seed;

    for (;;) {
        if (!options.healthy)
            sleep_ns(shape.fault_ns * draw_between(&random, 0.5, 1.5));
        write_batch();
        if (read(connection, &answer, sizeof(answer)) != sizeof(answer))
            exit(0);
    }
}

const struct role client = {.name = "client", .prepare = connect_to_victim, .run = ask_now_and_then};
