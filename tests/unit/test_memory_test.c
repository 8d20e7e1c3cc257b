/* --test-memory: intact memory passes; different addresses of the same memory are reported. */
#include "unit.h"
#include "server/process/memory_test.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_WORDS = 512, PAGES = 4, WORDS = PAGE_WORDS * PAGES };

TEST(memory_in_order_passes) {
    uint64_t *words = malloc(WORDS * sizeof *words);
    assert_int_equal(memory_test_addresses(words, WORDS), 0);
    assert_int_equal(memory_test_pattern(words, WORDS, 0x5555555555555555), 0);
    assert_int_equal(memory_test_random(words, WORDS, 7), 0);
    free(words);
}

/* The first and the third page are the same memory, as with a broken address line. */
TEST(addresses_of_the_same_memory_are_found) {
    size_t page = PAGE_WORDS * sizeof(uint64_t);
    int fd = memfd_create("memory", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * page)), 0);
    char *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(memory_test_addresses((uint64_t *)memory, WORDS), 0);
    assert_ptr_equal(mmap(memory + 2 * page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                     memory + 2 * page);
    assert_int_equal(memory_test_addresses((uint64_t *)memory, WORDS), PAGE_WORDS);
    assert_int_equal(memory_test_random((uint64_t *)memory, WORDS, 7), PAGE_WORDS);
    munmap(memory, PAGES * page);
    close(fd);
}
