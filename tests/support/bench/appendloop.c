/* The baseline of durable appends: appendloop FILE BYTES COUNT writes a line and syncs it, over and over.
   Prints the seconds it took. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: appendloop FILE BYTES COUNT\n");
        return 2;
    }
    size_t bytes = strtoul(argv[2], NULL, 10);
    long count = strtol(argv[3], NULL, 10);
    int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_TRUNC, 0600);
    char *line = malloc(bytes);
    if (fd < 0 || line == NULL || bytes == 0) {
        perror(argv[1]);
        return 1;
    }
    memset(line, 'x', bytes);
    line[bytes - 1] = '\n';
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < count; i++) {
        if (write(fd, line, bytes) != (ssize_t)bytes || fdatasync(fd) != 0) {
            perror(argv[1]);
            return 1;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.9f\n", (ended.tv_sec - begun.tv_sec) + (ended.tv_nsec - begun.tv_nsec) / 1e9);
    return 0;
}
