# Loading the append-only file at startup: complete, truncated, corrupt, missing and old files. seconds: 20

# Makes a directory with these files: name, bytes, …; in appendonlydir, or in the working directory if the name starts
# with "./".
proc directory_with {files} {
    set dir [file join $::unit_dir load[incr ::server_next]]
    file mkdir $dir/appendonlydir
    foreach {name bytes} $files {
        write_file [file join $dir [expr {[string match ./* $name] ? $name : "appendonlydir/$name"}]] $bytes
    }
    return $dir
}
proc refuses {files pattern args} {
    set dir [directory_with $files]
    set got [run_server --port [free_port] --bind 127.0.0.1 --dir $dir --appendonly yes {*}$args]
    assert_equal 1 [dict get $got code]
    assert_match $pattern [dict get $got out]
    foreach {name bytes} $files {
        assert_equal $bytes [file_bytes \
            [file join $dir [expr {[string match ./* $name] ? $name : "appendonlydir/$name"}]]] "$name has changed"
    }
}
proc loads {files overrides body} {
    uplevel 1 [list start_server \
        [list no_rdma 1 keep_dir [directory_with $files] overrides [list appendonly yes {*}$overrides]] $body]
}
proc commands {args} {join [lmap c $args {resp_command {*}$c}] ""}
set ::m "file a.base.aof seq 1 type b\nfile a.incr.aof seq 1 type i\n"
proc with_manifest {base incr} {list appendonly.aof.manifest $::m a.base.aof $base a.incr.aof $incr}

set ::good [commands {SELECT 0} {SET a 1} MULTI {SET b 2} {SET c 3} EXEC {SET d 4}]
loads [with_manifest [commands {SELECT 1} {SET x y}] $::good] {} {
    test "the base is read, then the incremental file" {
        assert_equal {1 2 3 4} [r mget a b c d]
        r select 1
        assert_equal y [r get x]
        r select 0
        foreach line {
            "DB loaded from base file a.base.aof: *seconds" "DB loaded from incr file a.incr.aof: *seconds"\
                "DB loaded from append only file: *seconds"
            "Opening AOF incr file a.incr.aof on server start"
        } {assert_match "*$line*" [log_text]}
    }
    test "what is appended later goes to the same file, and begins with SELECT" {
        r set e 5
        assert_equal $::good[commands {SELECT 0} {set e 5}] [file_bytes [srv dir]/appendonlydir/a.incr.aof]
    }
}

# The keys of a to d that exist after loading a prefix of the file.
proc keys_of {len} {
    set keys {}
    foreach {end have} [list [string length [commands {SELECT 0} {SET a 1}]] a \
        [string length [commands {SELECT 0} {SET a 1} MULTI {SET b 2} {SET c 3} EXEC]] {a b c} [string length $::good]\
        {a b c d}] {
        if {$len >= $end} {set keys $have}
    }
    return $keys
}

start_server {no_rdma 1 overrides {appendonly yes}} {
    test "a file that ends anywhere is loaded up to the last whole command or transaction, and cut there" -timeout 300 {
        set whole 0
        for {set len 0} {$len <= [string length $::good]} {incr len} {
            write_file [aof_dir]/appendonly.aof.manifest \
                "file appendonly.aof.1.base.rdb seq 1 type b\nfile a.incr.aof seq 1 type i\n"
            write_file [aof_dir]/a.incr.aof [string range $::good 0 $len-1]
            set from [log_size]
            restart_server -signal KILL
            set keys [keys_of $len]
            assert_equal $keys [lsort [r keys *]] "after $len bytes"
            set left [file size [aof_dir]/a.incr.aof]
            assert {$left <= $len}
            if {$left < $len} {
                assert {[log_has "!!! Warning: short read while loading the AOF file a.incr.aof!!!" $from]}
                assert {[log_has "!!! Truncating the AOF a.incr.aof at offset $left !!!" $from]}
                assert {[log_has "AOF a.incr.aof loaded anyway because aof-load-truncated is enabled" $from]}
            } else {
                incr whole
            }
            r set z 1
            keeps_data {restart_server -signal KILL}
        }
        # The empty file, and the ends of SELECT, SET a, EXEC and SET d.
        assert_equal 5 $whole
    }
}

test "with aof-load-truncated no a file that ends early ends the server" {
    refuses [with_manifest "" [string range $::good 0 end-3]] \
        "*Unexpected end of file reading the append only file a.incr.aof. You can: 1) Make a backup*valkey-check-aof\
        --fix*" --aof-load-truncated no
}

test "a file that ends early and is not the last one ends the server" {
    refuses [list appendonly.aof.manifest "file a seq 1 type i\nfile b seq 2 type i\n" a \
        [string range $::good 0 end-3] b ""] \
        "*Fatal error: the truncated file is not the last file*"
    refuses [with_manifest [string range $::good 0 end-3] ""] \
        "*The append-only file a.base.aof ends early, at offset*not the last file*"
}

foreach {what bytes offset} [list \
    "bytes that are no command" "garbage" [string length $::good] \
    "an argument without its end" "*2\r\n\$3\r\nDELxx\$1\r\na\r\n" * \
    "a length that is no number" "*2\r\n\$x\r\nDEL\r\n\$1\r\na\r\n" * \
    "a command without arguments" "*0\r\n" * \
    "an unknown command" [commands {NOSUCH a}] [string length $::good] \
    "a command with too few arguments" [commands {SET a}] [string length $::good] \
] {
    test "$what in a file end the server, with the offset" {
        refuses [with_manifest "" $::good$bytes[commands {SET e 5}]] \
            "*Bad file format reading the append only file a.incr.aof: make a backup of your AOF file, then use\
            ./valkey-check-aof --fix <filename.manifest>*at offset $offset*"
    }
}

test "a file with a database that the server does not have ends the server: nothing goes to another database" \
    -needs {ours 1} {
    foreach command {{SELECT 4} {SWAPDB 0 4} {MOVE a 4} {COPY a a DB 4}} {
        refuses [with_manifest "" [commands {SELECT 0} {SET a 1} $command {SET e 5}]] \
            "*beyond the 4 databases that this server is configured for*" --databases 4
        refuses [with_manifest [commands {SET a 1}] [commands MULTI $command {SET e 5} EXEC]] \
            "*beyond the 4 databases that this server is configured for*" --databases 4
    }
}

test "the log says what is wrong with a command of a file, in the words of the reply" {
    refuses [with_manifest "" [commands {NOSUCH a}]] \
        "*unknown command 'NOSUCH', with args beginning with: 'a' *"
    refuses [with_manifest "" [commands {config nosuch}]] "*unknown subcommand 'nosuch'. Try CONFIG HELP.*"
    refuses [with_manifest "" [commands {config get}]] "*wrong number of arguments for 'config|get' command*"
    refuses [with_manifest "" [commands {cluster}]] "*wrong number of arguments for 'cluster' command*"
}

foreach {what manifest message} {
    "an empty manifest" "" "Found an empty AOF manifest"
    "a line without all fields" "file a seq 1\n" "Invalid AOF manifest file format"
    "a sequence that is no number" "file a seq x type b\n" "Invalid AOF manifest file format"
    "an unknown type" "file a seq 1 type x\n" "Unknown AOF file type"
    "two base files" "file a seq 1 type b\nfile b seq 2 type b\n" "Found duplicate base file information"
    "sequences that fall" "file a seq 2 type i\nfile b seq 1 type i\n" "Found a non-monotonic sequence number"
    "a path" "file ../a seq 1 type b\n" "File can't be a path, just a filename"
} {
    test "a manifest with $what ends the server, whether the file is on or off" {
        refuses [list appendonly.aof.manifest $manifest] "*FATAL AOF MANIFEST FILE ERROR*$message*"
        refuses [list appendonly.aof.manifest $manifest] "*FATAL AOF MANIFEST FILE ERROR*$message*" --appendonly no
    }
}

test "a file that the manifest names and that is not there ends the server" {
    refuses [list appendonly.aof.manifest $::m a.base.aof ""] \
        "*can't open the append log file a.incr.aof for reading: No such file or directory*"
}

test "a base that is a damaged RDB file ends the server" {
    refuses [with_manifest "REDIS0011xxxxxxxx" ""] "*a.base.aof*"
}

loads [list ./appendonly.aof $::good] {} {
    test "a file by itself, as old servers wrote it, becomes the base" {
        assert_equal {1 2 3 4} [r mget a b c d]
        assert_match "file appendonly.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n" [aof_manifest]
        assert_equal 0 [file exists [srv dir]/appendonly.aof]
        assert {[log_has "Successfully migrated an old-style AOF file (appendonly.aof) into the AOF directory\
            (appendonlydir)."]}
        r set e 5
        restart_server -signal KILL
        assert_equal {1 5} [r mget a e]
        aof_rewrite
        restart_server -signal KILL
        assert_equal {1 5} [r mget a e]
        assert_equal {appendonly.aof.2.base.rdb} [aof_files b]
    }
}

start_server {no_rdma 1} {
    test "the RDB file becomes the base when there was no append-only file" -needs {ours 1} {
        r set k saved
        r save
        restart_server -signal KILL -overrides {appendonly yes}
        assert_equal saved [r get k]
        r set k2 appended
        file delete [srv dir]/dump.rdb
        restart_server -signal KILL
        assert_equal {saved appended} [r mget k k2]
    }

    test "the append-only file is read, and not the RDB file, where both are there" {
        r set k appended
        write_file [srv dir]/dump.rdb "no RDB file"
        restart_server -signal KILL
        assert_equal appended [r get k]
    }

    test "keys and hash fields that have expired meanwhile are deleted" {
        r set gone v px 200
        r set stays v px 1000000
        r hset h stays 1 gone 1
        r hpexpire h 200 fields 1 gone
        kill_process KILL [srv pid]
        server_reap [srv id]
        set lapsed [expr {[clock milliseconds] + 250}]
        wait_for_condition 5000 {[clock milliseconds] > $lapsed}
        server_start_again
        assert_equal {{} v} [r mget gone stays]
        assert_equal stays [r hkeys h]
        assert_range [r pttl stays] 1 1000000
    }

    test "clients are served LOADING while the file is read, and then the data" {
        for {set i 0} {$i < 2000} {incr i} {r set key:$i [string repeat x 1000]}
        aof_rewrite
        kill_process KILL [srv pid]
        server_reap [srv id]
        set f [open [srv conf] a]
        puts $f "key-load-delay 1000\nloading-process-events-interval-bytes 1024"
        close $f
        server_launch [srv id]
        set c ""
        wait_for_condition 10000 {![catch {set c [new_client -tcp 1]; $c config get port}]}
        assert_error_like "LOADING *" {$c get key:1}
        assert_match {*loading:1*aof_enabled:0*} [$c info persistence]
        $c config set key-load-delay 0
        wait_for_condition 30000 {![catch {$c get key:1}]}
        reconnect
        assert_morethan [r dbsize] 1999
    }

    test "DEBUG LOADAOF reads the file again, also while it is off" {
        r config set key-load-delay 0
        r set in-file v
        set digest [r debug digest]
        set from [log_size]
        assert_equal OK [r debug loadaof]
        assert_equal $digest [r debug digest]
        assert {[log_has "Append Only File loaded by DEBUG LOADAOF" $from]}
        r config set appendonly no
        r set behind v
        assert_equal OK [r debug loadaof]
        assert_equal $digest [r debug digest]
    }
}

start_server {} {
    test "DEBUG LOADAOF without any file is an error" {
        r set k v
        assert_error "ERR Error trying to load the AOF files, check server logs." {r debug loadaof}
        assert_equal 0 [r dbsize]
        r set k base
        aof_rewrite
        r set k later
        assert_equal OK [r debug loadaof]
        assert_equal base [r get k]
    }

    test "DEBUG LOADAOF reads the manifest again" {
        aof_turn_on
        aof_rewrite
        assert_equal appendonly.aof.2.incr.aof [aof_files i]
        r config set appendonly no
        aof_rewrite
        assert_equal OK [r debug loadaof]
        aof_turn_on
        assert_equal appendonly.aof.1.incr.aof [aof_files i]
    }

    test "DEBUG LOADAOF replaces the function libraries" {
        aof_turn_on
        r function load "#!lua name=in_base\nredis.register_function('f', function() return 1 end)"
        aof_rewrite
        assert_equal OK [r debug loadaof]
        assert_equal 1 [r fcall f 0]
        r config set appendonly no
        r function flush
        aof_rewrite
    }
}

start_server {overrides {appendonly yes}} {
    test "DEBUG LOADAOF of a damaged file ends the server: clients must not take a part of the data for all" {
        r set k v
        set file [open [aof_file i] a]
        puts -nonewline $file "*3\r\nno command\r\n*1\r\n"
        close $file
        catch {r debug loadaof}
        wait_for_log "*Error trying to load the AOF files. Exiting.*"
        expect_server_exit
    }
}
