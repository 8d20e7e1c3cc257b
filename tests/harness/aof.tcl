# The content of the append-only file of the current server.

proc aof_dir {} {file join [srv dir] appendonlydir}
proc aof_manifest {} {file_bytes [aof_dir]/appendonly.aof.manifest}
# Names of the files of one type in the manifest: b (base), i (incremental), h (history).
proc aof_files {type} {
    lmap {line name} [regexp -all -inline -line "^file (\\S+) seq \\d+ type $type\$" [aof_manifest]] {set name}
}
proc aof_file {type} {file join [aof_dir] [lindex [aof_files $type] end]}

# Parses the bytes of a file: each command as a list, annotations unchanged.
proc aof_parse {bytes} {
    set out {}
    set at 0
    while {$at < [string length $bytes]} {
        set end [string first "\r\n" $bytes $at]
        set line [string range $bytes $at $end-1]
        set at [expr {$end + 2}]
        if {[string index $line 0] eq "#"} {
            lappend out $line
            continue
        }
        if {![regexp {^\*(\d+)$} $line -> count]} {error "no command at offset $at: [printable $line]"}
        set command {}
        for {set i 0} {$i < $count} {incr i} {
            set end [string first "\r\n" $bytes $at]
            set len [string range $bytes $at+1 $end-1]
            lappend command [string range $bytes [expr {$end + 2}] [expr {$end + 1 + $len}]]
            set at [expr {$end + 4 + $len}]
        }
        lappend out $command
    }
    return $out
}
# Returns the commands that the body appends. The server writes the file before it sends a reply.
proc aof_appended {body} {
    set file [aof_file i]
    set from [file size $file]
    uplevel 1 $body
    return [aof_parse [string range [file_bytes $file] $from end]]
}

proc aof_wait_rewritten {} {
    wait_for_condition 30000 {
        [info_field persistence aof_rewrite_in_progress] == 0 && [info_field persistence aof_rewrite_scheduled] == 0
    }
}
proc aof_rewrite {} {
    r bgrewriteaof
    aof_wait_rewritten
}
proc aof_turn_on {} {
    r config set appendonly yes
    aof_wait_rewritten
}
# Starts a rewrite that goes on when rdb-key-save-delay is 0 again.
proc aof_slow_rewrite {} {
    r set slow-key v
    r config set rdb-key-save-delay 100000000
    set from [log_size]
    r bgrewriteaof
    wait_for_log "Background append only file rewriting started by pid" $from
}
proc aof_end_slow_rewrite {} {
    r config set rdb-key-save-delay 0
    aof_wait_rewritten
}
# A rewrite that fails: a directory has the name of the file that it writes.
proc aof_fail_rewrite {} {
    set path [file join [srv dir] temp-rewriteaof-bg-[srv pid].aof]
    file mkdir $path
    aof_rewrite
    file delete $path
}

# The thread that syncs with appendfsync always: auto, main or background. A genuine server has only the main thread.
proc aof_sync_thread {thread} {if {[server_is_ours]} {assert_equal OK [r debug aof-sync-thread $thread]}}

# Starts a server whose disk has the faults that `faults` sets (programs/preload/disk-faults.c).
proc start_faulty_server {overrides body} {
    set rules [file join $::unit_dir rules[incr ::server_next]]
    uplevel 1 [list start_server [list no_rdma 1 overrides $overrides env \
        [list LD_PRELOAD=[tool preload/disk-faults.so] DISK_FAULTS=$rules ASAN_OPTIONS=verify_asan_link_order=0]] \
        "set ::rules [list $rules]\n$body"]
}
proc faults {args} {write_file $::rules [join $args \n]\n}
