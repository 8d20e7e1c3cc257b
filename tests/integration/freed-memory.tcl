# Freed memory returns to the system: by a thread of the allocator (jemalloc-bg-thread), by MEMORY PURGE, and by a flush
# in the foreground. seconds: 15

proc resident_mib {} {expr {[process_memory [srv pid]] / 1024}}
proc fill {} {r debug populate 60000 key 1000}
# A sanitizer's allocator has no such thread, and keeps freed memory for some time.
proc has_jemalloc {} {string match jemalloc* [info_field memory mem_allocator]}
# A thread may end between listing it and reading its name.
proc purges_in_background {} {expr {"jemalloc_bg_thd" in [lmap task [glob /proc/[srv pid]/task/*/comm] {
    if {[catch {file_bytes $task} name]} continue
    string trim $name
}]}}

start_server {overrides {jemalloc-bg-thread no}} {
    foreach flush {flushall flushdb} {
        test "$flush sync returns the memory immediately" -needs {true {[has_jemalloc]}} {
            set before [resident_mib]
            fill
            assert_morethan [resident_mib] [expr {$before + 50}]
            r $flush sync
            assert_lessthan [resident_mib] [expr {$before + 15}]
        }
    }

    test "jemalloc-bg-thread starts and stops the thread that returns memory" -needs {true {[has_jemalloc]}} {
        assert_equal {jemalloc-bg-thread no} [r config get jemalloc-bg-thread]
        assert {![purges_in_background]}
        r config set jemalloc-bg-thread yes
        wait_for_condition 5000 {[purges_in_background]}
        r config set jemalloc-bg-thread no
        wait_for_condition 5000 {![purges_in_background]}
    }

    test "MEMORY PURGE returns the memory of a flush in the background" -needs {true {[has_jemalloc]}} {
        set before [resident_mib]
        fill
        r flushall async
        wait_for_condition 20000 {[info_field memory lazyfree_pending_objects] == 0}
        r memory purge
        wait_for_condition 5000 {[resident_mib] < $before + 15}
    }
}

start_server {} {
    test "an idle server returns the memory of what was deleted" -needs {true {[has_jemalloc]}} {
        assert_equal {jemalloc-bg-thread yes} [r config get jemalloc-bg-thread]
        assert [purges_in_background]
        set before [resident_mib]
        fill
        r flushall
        wait_for_condition 50000 {[resident_mib] < $before + 15}
        assert_lessthan [info_field memory allocator_resident] [expr {($before + 15) << 20}]
    }
}
