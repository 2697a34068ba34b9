/* What the kernel takes of a logged write, without a server: processor time of the thread that writes and of
 * the one that syncs, a record.
 *
 *   cc -O2 -pthread -o log_floor log_floor.c && ./log_floor WAY RECORD_BYTES RECORDS_A_BATCH RECORDS DIR
 *
 * Ways, each behind one copy of the record into a ring of 16 MiB:
 *   copy    nothing else
 *   new     pwrite of each batch to files of 128 MiB, each allocated when the last one is full
 *   used    pwrite to one such file, again and again: its pages are in the system's memory
 *   direct  the second thread writes the ring to such a file with O_DIRECT, a MiB at a time
 *   mapped  as direct, and the ring is a file that both threads have mapped: what is in it outlives the process
 *
 * The second thread calls fdatasync for each 8 MiB.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1L << 20)
#define FILE_BYTES (128 * MIB)
#define RING_BYTES (16 * MIB)
#define SYNC_BYTES (8 * MIB)

static char *ring;
static const char *directory;
static int file, is_direct;
static atomic_long written, synced;
static atomic_int is_over;

static double cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void must(int is_right, const char *what) {
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

static int make(const char *name, int flags, long bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    unlink(path);
    int made = open(path, O_RDWR | O_CREAT | flags, 0600);
    must(made >= 0 && fallocate(made, 0, 0, bytes) == 0, path);
    return made;
}

static void fill(int target, long bytes) {
    char *ones = malloc(MIB);
    memset(ones, 1, MIB);
    for (long at = 0; at < bytes; at += MIB)
        must(pwrite(target, ones, MIB, at) == MIB, "fill");
    fsync(target);
    free(ones);
}

static void *sync_all(void *spent_ns) {
    double began_ns = cpu_ns();
    long done = 0;
    for (;;) {
        int was_over = atomic_load(&is_over);
        long due = atomic_load(&written) - done;
        if (is_direct && due >= MIB) {
            must(pwrite(file, ring + done % RING_BYTES, MIB, done % FILE_BYTES) == MIB, "direct");
            done += MIB;
            if (done % SYNC_BYTES == 0)
                fdatasync(file);
        } else if (!is_direct && due >= SYNC_BYTES) {
            fdatasync(file);
            done += due;
        } else if (was_over) {
            break;
        } else {
            usleep(1000);
        }
        atomic_store(&synced, done);
    }
    *(double *)spent_ns = cpu_ns() - began_ns;
    return NULL;
}

static void copy_in(long at, const char *bytes, long count) {
    long here = RING_BYTES - at < count ? RING_BYTES - at : count;
    memcpy(ring + at, bytes, here);
    memcpy(ring, bytes + here, count - here);
}

static void write_out(long at, long count, long offset) {
    long here = RING_BYTES - at < count ? RING_BYTES - at : count;
    must(pwrite(file, ring + at, here, offset) == here, "write");
    must(pwrite(file, ring, count - here, offset + here) == count - here, "write");
}

int main(int count, char **words) {
    must(count == 6, "WAY RECORD_BYTES RECORDS_A_BATCH RECORDS DIR");
    const char *way = words[1];
    long record = atol(words[2]), batch = atol(words[3]), records = atol(words[4]);
    directory = words[5];
    int is_new = !strcmp(way, "new"), is_used = !strcmp(way, "used"), is_mapped = !strcmp(way, "mapped");
    is_direct = is_mapped || !strcmp(way, "direct");
    file = make("segment", is_direct ? O_DIRECT : 0, FILE_BYTES);
    if (is_used)
        fill(file, FILE_BYTES);
    int kept = is_mapped ? make("ring", 0, RING_BYTES) : -1;
    if (is_mapped)
        fill(kept, RING_BYTES);
    int kind = MAP_POPULATE | (is_mapped ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, kind, kept, 0);
    must(ring != MAP_FAILED, "mmap");
    pthread_t syncer;
    double syncer_ns = 0;
    pthread_create(&syncer, NULL, sync_all, &syncer_ns);

    static char bytes[65536];
    double began_ns = cpu_ns(), waited_ns = 0;
    long tail = 0, offset = 0;
    for (long done = 0; done < records; done += batch) {
        long here = batch * record;
        while ((is_direct || is_new || is_used) && tail + here - atomic_load(&synced) > RING_BYTES - 2 * MIB) {
            double before_ns = cpu_ns();
            usleep(200);
            waited_ns += cpu_ns() - before_ns;
        }
        for (long at = 0; at < here; at += record)
            copy_in((tail + at) % RING_BYTES, bytes, record);
        if (is_new || is_used) {
            if (offset + here > FILE_BYTES) {
                offset = 0;
                if (is_new) {
                    close(file);
                    file = make("segment", 0, FILE_BYTES);
                }
            }
            write_out(tail % RING_BYTES, here, offset);
            offset += here;
        }
        tail += here;
        atomic_store(&written, tail);
    }
    double writer_ns = cpu_ns() - began_ns - waited_ns;
    atomic_store(&is_over, 1);
    pthread_join(syncer, NULL);
    printf("%s, %ld bytes: %.1f ns to write, %.1f ns to sync a record\n", way, record, writer_ns / records,
           syncer_ns / records);
    return 0;
}
