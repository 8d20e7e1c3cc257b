# Options of persistence whose effect is visible only in the files, in the calls to the disk or in the save's threads.
# seconds: 6

# Starts a server on this RDB file and returns the number of keys and the value of k.
proc load_bytes {bytes args} {
    set dir [file join $::unit_dir load[incr ::server_next]]
    file mkdir $dir
    write_file $dir/dump.rdb $bytes
    set got {}
    start_server [list no_rdma 1 overrides [concat [list dir $dir] $args]] {
        set got [list [r dbsize] [expr {[r type k] eq "string" ? [r get k] : ""}]]
    }
    return $got
}
# A server rejects this RDB file. Returns its output.
proc refused_bytes {bytes args} {
    set dir [file join $::unit_dir load[incr ::server_next]]
    file mkdir $dir
    write_file $dir/dump.rdb $bytes
    set got [run_server --port [free_port] --bind 127.0.0.1 --dir $dir {*}$args]
    assert_equal 1 [dict get $got code]
    return [dict get $got out]
}
proc small_rdb {magic} {return "$magic\xfe\x00\x00\x01k\x01v\xff[string repeat \0 8]"}

# --- rdb-version-check ---

foreach version {REDIS0012 REDIS0079 VALKEY081} {
    test "rdb-version-check: $version is loaded with relaxed, and refused with strict, the default" {
        assert_equal {1 v} [load_bytes [small_rdb $version] rdb-version-check relaxed]
        assert_match "*Can't handle RDB format version*" [refused_bytes [small_rdb $version]]
    }
}
foreach version {REDIS0001 REDIS0011 VALKEY080} {
    test "rdb-version-check: $version is always loaded" {
        assert_equal {1 v} [load_bytes [small_rdb $version]]
    }
}
test "rdb-version-check: a version that no server has written is always refused" {
    foreach check {strict relaxed} {
        assert_match "*Can't handle RDB format version 80*" \
            [refused_bytes [small_rdb REDIS0080] --rdb-version-check $check]
    }
}

test "rdb-version-check: a file of the future with a value of an unknown type is refused" {
    foreach {magic message} {VALKEY222 "*Unknown type or opcode when loading DB. Unrecoverable error, aborting now.*"
        REDIS0075 "*Can't handle foreign type or opcode 150 in RDB with version 75*"} {
        assert_match $message [refused_bytes "$magic\xfe\x00\x96\x01k\x01v\xff[string repeat \0 8]" \
            --rdb-version-check relaxed]
    }
}
test "rdb-version-check: DEBUG RELOAD of a version that is refused keeps the data" {
    start_server {no_rdma 1 overrides {appendonly no}} {
        r set old data
        write_file [file join [srv dir] dump.rdb] [small_rdb VALKEY081]
        assert_error_like * {r debug reload nosave}
        assert_equal data [r get old]
        assert {[log_has "Can't handle RDB format version 81"]}
        assert {![log_has "Flushing old data"]}
        r config set rdb-version-check relaxed
        r debug reload nosave
        assert_equal {k {}} [list [r keys *] [r get old]]
    }
}
test "rdb-version-check: RESTORE and FUNCTION RESTORE take payloads of such versions with relaxed" {
    start_server {no_rdma 1} {
        r debug set-skip-checksum-validation 1
        foreach version {0 1 11 12 79 80 81 65535} strict {0 1 1 0 0 1 0 0} {
            foreach {check accepted} [list strict $strict relaxed [expr {$version > 0}]] {
                r config set rdb-version-check $check
                set payload "[binary format s $version][string repeat \0 8]"
                set expected [expr {$accepted ? "OK" : "ERR DUMP payload version or checksum are wrong"}]
                catch {r restore k 0 "\0\x01v$payload" replace} got
                assert_equal "$check $version: $expected" "$check $version: $got"
                catch {r function restore $payload} got
                assert_equal "$check $version: $expected" "$check $version: $got"
            }
        }
    }
}

# --- sanitize-dump-payload ---

# Values with a duplicate field or member: type, then the value without its length prefix.
proc listpack {count bytes} {return [binary format iusu [expr {7 + [string length $bytes]}] $count]$bytes\xff}
set duplicates [list \
    set \x14 [listpack 2 \x81m\x02\x81m\x02] \
    hash \x10 [listpack 4 \x81f\x02\x81v\x02\x81f\x02\x81w\x02] \
    zset \x11 [listpack 4 \x81m\x02\x01\x01\x81m\x02\x02\x01] \
    intset \x0b [binary format iuiususu 2 2 5 5]]
foreach {name type value} $duplicates {
    set value $type[binary format c [string length $value]]$value
    test "sanitize-dump-payload: a packed $name with a member twice is refused with no and with yes" {
        set file "VALKEY080\xfe\x00[string index $value 0]\x01k[string range $value 1 end]\xff[string repeat \0 8]"
        foreach level {no yes} {
            assert_match "*Error in RDB file*" [refused_bytes $file --sanitize-dump-payload $level]
        }
    }
}
foreach {name bytes reason} [list \
    "with a wrong checksum" "VALKEY080\xff\x00\x01[string repeat \0 6]" \
        "*RDB CRC error*Wrong RDB checksum expected: (*) but got (100)*" \
    "without a signature" "FOOOOO080\xff[string repeat \0 8]" \
        "*Wrong signature trying to load DB from file: FOOOOO080*" \
    "that ends early" "VALKEY080\xfe\x00\x00\x01k\x05v" \
        "*Unexpected EOF reading RDB file*Short read or OOM loading DB. Unrecoverable error, aborting now.*" \
    "of an old version with a type that is newer" "REDIS0011\xfe\x00\x16\x01k\x01\x01f\x01v[string repeat \0 16]" \
        "*Can't handle foreign type or opcode 22 in RDB with version 11*" \
] {
    test "the log says why a file $name is refused" {
        assert_match "${reason}Fatal error loading the DB, check server logs. Exiting.*" [refused_bytes $bytes]
    }
}
start_server {} {
    test "sanitize-dump-payload: RESTORE refuses a packed value with a member twice with no and with yes" {
        r debug set-skip-checksum-validation 1
        foreach level {no yes clients} {
            r config set sanitize-dump-payload $level
            foreach {name type value} $::duplicates {
                set payload $type[binary format c [string length $value]]$value\x50\x00[string repeat \0 8]
                assert_error "ERR Bad data format" {r restore k 0 $payload}
            }
        }
        assert_equal 0 [r exists k]
    }
}

# --- Files ---

start_server {} {
    test "rdbcompression: values are compressed with yes, and not with no" {
        r set k [string repeat abcd 1000]
        set sizes {}
        foreach value {yes no} {
            r config set rdbcompression $value
            r save
            lappend sizes [file size [srv dir]/dump.rdb]
            restart_server -signal KILL
            assert_equal [string repeat abcd 1000] [r get k]
        }
        assert_lessthan [lindex $sizes 0] 1000
        assert_morethan [lindex $sizes 1] 4000
    }
}

start_server {overrides {appendonly yes}} {
    test "aof-disable-auto-gc: with yes a rewrite keeps the replaced files as history, with no they are deleted" {
        r config set aof-disable-auto-gc yes
        r set k v
        set old [list [aof_file b] [aof_file i]]
        aof_rewrite
        assert_equal 2 [llength [aof_files h]]
        foreach file $old {assert_equal 1 [file exists $file]}
        r config set aof-disable-auto-gc no
        aof_rewrite
        assert_equal {} [aof_files h]
        wait_for_condition 10000 {![file exists [lindex $old 0]] && ![file exists [lindex $old 1]]}
    }
}

start_server {overrides {appendonly yes appenddirname journals appendfilename journal}} {
    test "appenddirname and appendfilename name the directory and the files in it, also those of a rewrite" {
        r set k v
        foreach number {1 2} {
            if {$number == 2} {r bgrewriteaof}
            set names [list journal.$number.base.rdb journal.$number.incr.aof journal.manifest]
            wait_for_condition 30000 {
                [lsort [glob -nocomplain -tails -directory [file join [srv dir] journals] *]] eq $names
            }
        }
        aof_wait_rewritten
        assert_equal 0 [file exists [file join [srv dir] appendonlydir]]
        restart_server -signal KILL
        assert_equal v [r get k]
    }
}

# --- Calls to the disk ---

start_faulty_server {} {
    test "rdb-save-incremental-fsync: a large file is synced in pieces with yes, as a whole with no" {
        r config set rdbcompression no
        r debug populate 12000 key 1000
        foreach {value syncs} {yes 2 no 1} {
            r config set rdb-save-incremental-fsync $value
            # The next sync after these fails: with `no` there is none.
            faults "sync */temp-*.rdb fail EIO after=$syncs"
            assert_equal [expr {$value eq "yes"}] [catch {r save}] $value
        }
        faults
    }
}

start_faulty_server {appendonly yes} {
    test "aof-rewrite-incremental-fsync: a base file is synced in pieces with yes, as a whole with no" {
        r debug populate 12000 key 1000
        foreach {value syncs} {yes 2 no 1} {
            r config set rdbcompression no aof-rewrite-incremental-fsync $value
            faults "sync *temp-rewriteaof* fail EIO after=$syncs"
            aof_rewrite
            assert_equal [expr {$value eq "yes" ? "err" : "ok"}] \
                [info_field persistence aof_last_bgrewrite_status] $value
        }
        faults
    }

    test "no-appendfsync-on-rewrite: nothing is synced while a rewrite runs; behind it the file is" -needs {ours 1} {
        r config set no-appendfsync-on-rewrite yes
        aof_slow_rewrite
        faults "sync */appendonlydir/*.incr.aof fail EIO"
        r set k v
        # A sync would be due after a second, fail, and cause writes to be rejected.
        set end [expr {[clock milliseconds] + 2500}]
        while {[clock milliseconds] < $end} {
            assert_equal OK [r set k v]
            after 100
        }
        assert_equal 0 [info_field persistence aof_pending_bio_fsync]
        aof_end_slow_rewrite
        wait_for_condition 15000 {[catch {r set k v}]}
        assert_error_like "MISCONF Errors writing to the AOF file: Input/output error" {r set k v}
        faults
        wait_for_condition 15000 {![catch {r set k v}]}
        aof_wait_rewritten
    }
}

# --- The threads ---

# The first CPU that this process may use.
regexp {Cpus_allowed_list:\s+(\d+)} [file_bytes /proc/self/status] -> cpu
proc cpus_of {task} {
    set status ""
    catch {set status [file_bytes /proc/[srv pid]/task/$task/status]}
    regexp {Cpus_allowed_list:\s+(\S+)} $status -> cpus
    return $cpus
}
proc cpus_of_save {} {
    set found {}
    foreach path [glob -directory /proc/[srv pid]/task *] {
        if {[catch {file_bytes $path/comm} name]} continue
        if {[string match *save* $name]} {dict set found [string trim $name] [cpus_of [file tail $path]]}
    }
    return [lsort -stride 2 $found]
}
foreach {option command log} {
    bgsave-cpulist bgsave "Background saving started by pid"
    aof-rewrite-cpulist bgrewriteaof "Background append only file rewriting started by pid"
} {
    start_server [list overrides [list $option $cpu rdb-key-save-delay 100000000]] {
        test "$option: the threads of the save run on these CPUs, and the server on all" {
            r set k v
            set before [cpus_of [srv pid]]
            r $command
            wait_for_log $log
            wait_for_condition 10000 {[cpus_of_save] eq [list save $cpu save_reader $cpu]}
            assert_equal $before [cpus_of [srv pid]]
            r config set rdb-key-save-delay 0
        }
    }
}
